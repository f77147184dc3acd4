"""The files that the agent and the MPS container share on the node, below `/run/partita`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from partita.agent.errors import SetupError
from partita.pods.mps_directories import RUN_DIRECTORY

__all__ = ["Paths", "remove_file", "write_file", "writing"]


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one GPUServer.

    Parameters
    ----------
    server
        Its name.
    run
        The directory that both containers mount from the node.
    """

    server: str
    run: Path = Path(RUN_DIRECTORY)

    @property
    def mps_config(self) -> Path:
        """Configuration of the MPS container, written by the agent (`MPSConfig`)."""
        return self.run / "servers" / f"{self.server}.json"

    @property
    def mps_report(self) -> Path:
        """What the MPS container has started (`MPSReport`)."""
        return self.run / "servers" / f"{self.server}.mps.json"

    @property
    def mps_toml(self) -> Path:
        """Configuration of a control daemon with protocol 3, written by the MPS container."""
        return self.run / "servers" / f"{self.server}.toml"

    @property
    def agent_lock(self) -> Path:
        """Locked by the agent while it runs."""
        return self.run / "servers" / f"{self.server}.lock"

    def gpu(self, uuid: str) -> Path:
        """Directory of one GPU."""
        return self.run / uuid

    def gpu_lock(self, uuid: str) -> Path:
        """Locked by the one agent that serves the GPU."""
        return self.run / "servers" / f"{uuid}.lock"

    def pipes(self, uuid: str) -> Path:
        """Path of `partita.pods.mps_directories.pipe_directory`."""
        return self.gpu(uuid) / "pipe"

    def logs(self, uuid: str) -> Path:
        """Path of `partita.pods.mps_directories.log_directory`."""
        return self.gpu(uuid) / "log"


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Translate an error of changing a directory of the node.

    Raises
    ------
    SetupError
        The directory cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise SetupError(
            "DirectoryNotWritable",
            f"{directory} cannot be written ({error.strerror}): it is mounted from the node, which "
            "must let root write there",
        ) from error


def write_file(path: Path, text: str) -> None:
    """Write a file atomically.

    Raises
    ------
    SetupError
        The directory cannot be written.
    """
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text)
        new.replace(path)


def remove_file(path: Path) -> None:
    """Remove a file if it exists.

    Raises
    ------
    SetupError
        The directory cannot be written.
    """
    with writing(path.parent):
        path.unlink(missing_ok=True)
