"""The files of trained networks: arrays by name and a description, as numpy's npz."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "ModelError", "ModelOutputError", "Network"]

Floats = NDArray[np.float32]


class ModelError(Exception):
    """A model file is missing, invalid, or of another policy; the message names the file."""


class ModelOutputError(ArithmeticError):
    """A model returned a value that is not a finite number."""


class Network:
    """The weights of networks of one kind, and how they were trained.

    Parameters
    ----------
    arrays
        Weights by name.
    about
        `kind` and `version`, which must be those that a policy expects, and the settings of the
        training.
    """

    def __init__(self, arrays: Mapping[str, Floats], about: Mapping[str, object]) -> None:
        self.arrays, self.about = dict(arrays), dict(about)

    @classmethod
    def load(
        cls, path: Path | None, kind: str, version: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> "Network":
        """Read a file.

        Parameters
        ----------
        path
            The file; None for the one of this package.
        kind, version
            What it must be, according to its description.
        shapes
            The arrays that it must have.

        Raises
        ------
        ModelError
            The file cannot be read, or is not such a network.
        """
        name = str(path) if path is not None else f"{kind}.npz of the package"
        source = files("partita_policies") / "data" / f"{kind}.npz" if path is None else path
        try:
            with source.open("rb") as file, np.load(file, allow_pickle=False) as content:
                arrays = {key: content[key] for key in content.files}
            about = json.loads(str(arrays.pop("about")))
        except OSError as error:
            raise ModelError(
                f"model file {name}: {error.strerror or type(error).__name__}; expected a file "
                "that `partita train` wrote"
            ) from error
        except (ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ModelError(
                f"model file {name}: it is no model ({type(error).__name__}); expected a file that "
                "`partita train` wrote"
            ) from error
        if (about.get("kind"), about.get("version")) != (kind, version):
            raise ModelError(
                f"model file {name}: it says kind {about.get('kind')!r} and version "
                f"{about.get('version')!r}; expected {kind!r} and {version}: train it with this "
                "release"
            )
        given = {key: array.shape for key, array in arrays.items()}
        if given != dict(shapes):
            raise ModelError(f"model file {name}: its arrays are {given}; expected {dict(shapes)}")
        return cls({key: array.astype(np.float32) for key, array in arrays.items()}, about)

    def save(self, path: Path) -> None:
        """Write the file."""
        with path.open("wb") as file:
            np.savez_compressed(file, about=json.dumps(self.about), **self.arrays)  # type: ignore[arg-type]
