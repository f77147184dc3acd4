"""Finds fatal faults in what the MPS control daemon and its servers log.

A server is in FAULT only until its clients have exited, and most programs exit at once. A later
query of the server's state reports no fault, but a log still contains it.

A daemon in the background writes control.log and server.log
(https://docs.nvidia.com/deploy/mps/latest/appendix-logging.html). In the foreground, as Partita
runs it, daemon and server write to standard output, and there are no files (man page of
nvidia-cuda-mps-control, `-f`; tried with 470.256.02, 535.261.03, 550.163.01 and 555.58.02). A fatal
exception of the server is a line of the daemon
(https://github.com/NVIDIA/k8s-device-plugin/issues/685 and 762). So all of them are read.
"""

import asyncio
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from partita.agent.mps.namespaces import SERVER

__all__ = ["MPSLog", "copy_output", "mps_logs"]

_OUTPUT: Final = "foreground.log"
"""The fatal lines of the output of a daemon in the foreground, for the agent. The other lines would
fill the memory in which the directory lies: each command adds five."""
_NAMES: Final = (_OUTPUT, "control.log", "server.log", f"{SERVER}/server.log")
"""With protocol 3 the server has a directory of its own."""
_FATAL: Final = re.compile(r"(?<!(?i:non)[- ])\b(?:(?i:fatal)|FAULT)\b")
"""Matches a line that reports a fault of all clients: "Server encountered a fatal exception.
Shutting down" (issues above). FAULT is the name of the server's state.

An assumption (sm-fault): the line of a fault of all clients has the word "fatal" or "FAULT", as
NVIDIA calls such an error "fatal" (docs.nvidia.com/deploy/mps, "Error Containment") but does not
document the messages. If not, a fault after which all clients exit at once is charged to no
program."""
_AT_ONCE: Final = 1 << 16
"""Bytes that are read by one call, and the longest line that is kept."""


class _FatalLines:
    """Splits what is written to a log into lines."""

    def __init__(self) -> None:
        self._partial = b""
        """The start of a line that is not written completely yet."""

    def of(self, written: bytes) -> list[str]:
        """Return the lines, completed by what was written, that report a fatal fault."""
        *lines, self._partial = (self._partial + written).split(b"\n")
        self._partial = self._partial[-_AT_ONCE:]
        lines_read = (line.decode(errors="replace").strip() for line in lines)
        return [line for line in lines_read if _FATAL.search(line)]


class MPSLog:
    """New lines of one log.

    Parameters
    ----------
    path
        The log. Existing lines are ignored.
    at_once
        Bytes read by one call; the next call reads the rest.
    """

    def __init__(self, path: Path, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._path = path
        self._inode = 0
        self._offset = 0
        self._lines = _FatalLines()
        try:
            found = self._path.stat()
        except OSError:
            return
        self._inode, self._offset = found.st_ino, found.st_size

    def faults(self) -> list[str]:
        """Return the lines since the last call that report a fatal fault."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    # A new daemon has started a new log.
                    self._inode, self._offset, self._lines = found.st_ino, 0, _FatalLines()
                if found.st_size == self._offset:
                    return []
                file.seek(self._offset)
                read = file.read(self._at_once)
        except OSError:
            return []
        self._offset += len(read)
        return self._lines.of(read)


def mps_logs(directory: Path) -> list[MPSLog]:
    """Return the logs of one GPU's MPS.

    Parameters
    ----------
    directory
        CUDA_MPS_LOG_DIRECTORY of the control daemon.
    """
    return [MPSLog(directory / name) for name in _NAMES]


async def copy_output(process: asyncio.subprocess.Process, directory: Path) -> None:
    """Copy the output of a daemon to this container's, and its fatal lines to a file.

    Parameters
    ----------
    directory
        Directory of the file, as for `mps_logs`.
    """
    lines, output = _FatalLines(), process.stdout
    while output is not None and (written := await output.read(_AT_ONCE)):
        # A daemon whose output nobody reads would stop, and all clients with it.
        with suppress(OSError):
            sys.stdout.write(written.decode(errors="replace"))
            sys.stdout.flush()
        for line in lines.of(written):
            with suppress(OSError), (directory / _OUTPUT).open("a") as file:
                file.write(f"{line}\n")
