"""Inference with the trained network: an ONNX file, loaded and run without torch.

The metadata of the file contain its kind and version. A file of another kind, another version or
with other inputs is rejected with an error message and never run.
"""

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partita_policies.dqn.demand import Floats
from partita_policies.dqn.observation import (
    CANDIDATE_FEATURES,
    FEATURE_VERSION,
    STATE_FEATURES,
    Observation,
)

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["KIND", "ModelError", "ModelOutputError", "ScoringModel", "open_session"]

KIND = "partita-dqn"
"""Required `kind` in the metadata."""
_SHIPPED = "dqn.onnx"


class ModelError(Exception):
    """A model file is missing, invalid, or of another policy; the message names the file."""


class ModelOutputError(ArithmeticError):
    """A model returned a value that is not a finite number."""


def open_session(
    path: Path | None, shipped: str, kind: str, version: int, inputs: Mapping[str, int]
) -> tuple["InferenceSession", dict[str, str]]:
    """Open a model file with ONNX Runtime.

    Parameters
    ----------
    path
        The file; None for the file included in this package.
    shipped
        Name of the included file.
    kind, version
        Required values in the metadata.
    inputs
        Required inputs with the size of the last axis of each; 0 for any size.

    Returns
    -------
    tuple
        The session, on one thread, and the metadata.

    Raises
    ------
    ModelError
        The file cannot be read, or is not a model as required.
    """
    # ONNX Runtime would send events to its maker, and keep files of its own. It reads the variable
    # when it is loaded ("Disabling Telemetry" in docs/Privacy.md of microsoft/onnxruntime).
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: PLC0415 - loaded only if a policy uses it

    name = str(path) if path is not None else f"{shipped} of the package"
    try:
        source = files("partita_policies.dqn") / "data" / shipped if path is None else path
        content = source.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelError(
            f"model file {name}: {reason}; expected a file that `partita train` wrote"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        metadata: dict[str, str] = dict(session.get_modelmeta().custom_metadata_map)
    except Exception as error:
        # ONNX Runtime has an error class for each status; not all derive from RuntimeError.
        raise ModelError(
            f"model file {name}: it is no ONNX model ({type(error).__name__}); expected a file "
            "that `partita train` wrote"
        ) from error
    made_for = (metadata.get("kind"), metadata.get("features"))
    if made_for != (kind, str(version)):
        raise ModelError(
            f"model file {name}: its metadata say kind {made_for[0]!r} and features "
            f"{made_for[1]!r}; expected {kind!r} and '{version}': train it with this release"
        )
    sizes = {one.name: one.shape[-1] for one in session.get_inputs()}
    given = {name: size if isinstance(size, int) else 0 for name, size in sizes.items()}
    if given != dict(inputs):
        raise ModelError(f"model file {name}: its inputs are {given}; expected {dict(inputs)}")
    return session, metadata


class ScoringModel:
    """The network that scores combinations.

    Parameters
    ----------
    path
        The file; None for the file included in this package.

    Raises
    ------
    ModelError
        See `open_session`.
    """

    def __init__(self, path: Path | None = None) -> None:
        inputs = {"states": STATE_FEATURES, "candidates": CANDIDATE_FEATURES, "legal": 0}
        self._session, metadata = open_session(path, _SHIPPED, KIND, FEATURE_VERSION, inputs)
        self.training: dict[str, Any] = json.loads(metadata.get("training", "{}"))
        """The settings of its training."""
        known = np.array(json.loads(metadata.get("known", "[]")), np.float32)
        self.known = known if known.shape == (2, STATE_FEATURES) else None
        """(2, STATE_FEATURES): range of each feature in training; None if not in the metadata."""

    def estimates(self, observation: Observation) -> Floats:
        """Return the estimated return of each combination of each offer, (G, A); 0 where not legal.

        Raises
        ------
        ModelOutputError
            The estimate of a legal combination is not a finite number.
        """
        places = np.flatnonzero(observation.legal.any(axis=0))
        legal, candidates = observation.legal[:, places], observation.candidates[:, places]
        given = {
            "states": observation.states,
            "candidates": candidates,
            "legal": legal.astype(np.float32),
        }
        (judged,) = self._session.run(["estimates"], given)
        if not np.isfinite(judged[legal]).all():
            raise ModelOutputError("the network answered with something that is no finite number")
        estimates = np.zeros(observation.legal.shape, np.float32)
        estimates[:, places] = np.where(legal, judged, 0)
        return estimates
