"""Where agent and MPS wrapper meet, on the node: below `/run/partita`."""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from partita.agent.errors import SetupError
from partita.pods.mps_directories import RUN_DIRECTORY

__all__ = ["Handover", "Lock", "Paths", "write_file"]


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one GPUServer.

    Parameters
    ----------
    server
        Its name.
    run
        The directory that both containers and the node have in common.
    """

    server: str
    run: Path = Path(RUN_DIRECTORY)

    @property
    def handover(self) -> Path:
        """What the agent tells the wrapper."""
        return self.run / "servers" / f"{self.server}.json"

    @property
    def agent_lock(self) -> Path:
        """Held by the agent for as long as it lives."""
        return self.run / "servers" / f"{self.server}.lock"

    def gpu(self, uuid: str) -> Path:
        """All of one GPU."""
        return self.run / uuid

    def gpu_lock(self, uuid: str) -> Path:
        """Held by the one agent that serves the GPU."""
        return self.run / "servers" / f"{uuid}.lock"

    def pipes(self, uuid: str) -> Path:
        """As `partita.pods.mps_directories.pipe_directory`."""
        return self.gpu(uuid) / "pipe"

    def logs(self, uuid: str) -> Path:
        """As `partita.pods.mps_directories.log_directory`."""
        return self.gpu(uuid) / "log"


@dataclass(frozen=True, slots=True)
class Handover:
    """What the wrapper must know before it starts MPS."""

    uuid: str
    """The GPU; empty once it is given back."""
    memory: int
    """MiB that a client may have at most: the GPU's, since the jobs' own limits are below it."""
    agent: int
    """The agent's PID: a file that another one left behind is not to be believed."""
    restarts: int = 0
    """Counted up to have MPS restarted."""

    @classmethod
    def read(cls, path: Path) -> "Handover | None":
        """Read it; None while there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write it in one piece."""
        write_file(path, json.dumps(asdict(self)))


def write_file(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new text, never a part.

    Raises
    ------
    SetupError
        If the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise SetupError(
            "DirectoryNotWritable",
            f"{path.parent} cannot be written ({error.strerror}): the server Pod mounts it from "
            "the node, which must let root write there",
        ) from error


class Lock:
    """A lock that goes with its process, however that ends.

    Parameters
    ----------
    path
        The lock's file; who holds it writes their PID there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def take(self) -> bool:
        """Take it; tell whether we have it."""
        if self._file is not None:
            return True
        write_file(self._path.with_name(f"{self._path.name}.probe"), "")
        try:
            self._path.with_name(f"{self._path.name}.probe").unlink()
            file = self._path.open("a+")
        except FileNotFoundError:
            # An agent that went took the empty directory away.
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        if not _is_at(file, self._path):
            # Its last holder took it away between our opening it and our having it.
            file.close()
            return False
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return True

    def release(self, *, remove: bool = False) -> None:
        """Give it back; and take its file away where nobody will want it."""
        if self._file is not None:
            if remove:
                self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """PID of the living process that holds it; None when nobody does."""
        try:
            with self._path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    text = file.read()
                    return int(text) if text.isdigit() else None
        except FileNotFoundError:
            pass
        return None


def _is_at(file: TextIO, path: Path) -> bool:
    """Tell whether an open file is still the one of its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
