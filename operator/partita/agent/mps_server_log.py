"""Reads what the MPS server adds to its log.

It is in FAULT only until its clients have left, which programs do at once; whoever asks for its
state later is told that all is well. What it wrote stays.
"""

import os
import re
from pathlib import Path
from typing import Final

__all__ = ["ServerLog"]

_NAME: Final = "server.log"
"""https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html,
CUDA_MPS_LOG_DIRECTORY: its startup and shutdown, and the status of its clients."""
_FATAL: Final = re.compile(r"\b(?:(?i:fatal)|FAULT)\b")
"""How a line tells of a fault that all clients share. An assumption: NVIDIA lists no messages. It
calls such an error "fatal" (docs.nvidia.com/deploy/mps, "Error Containment"; "Server encountered
a fatal exception" in https://github.com/NVIDIA/k8s-device-plugin/issues/685), and FAULT is the
state."""
_AT_ONCE: Final = 1 << 16
"""Bytes read at a time; the rest is read the next time."""


class ServerLog:
    """The log of one GPU's MPS server, from now on.

    Parameters
    ----------
    directory
        CUDA_MPS_LOG_DIRECTORY of the control daemon. A log that is there already is history.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        self._inode = 0
        self._offset = 0
        self._begun = b""
        """Of a line whose end is not written yet."""
        try:
            found = self._path.stat()
        except OSError:
            return
        self._inode, self._offset = found.st_ino, found.st_size

    def faults(self) -> list[str]:
        """Return the lines, since the last call, that tell of a fatal fault."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    # Another daemon's: it began a new one.
                    self._inode, self._offset, self._begun = found.st_ino, 0, b""
                if found.st_size == self._offset:
                    return []
                file.seek(self._offset)
                read = file.read(_AT_ONCE)
        except OSError:
            return []
        self._offset += len(read)
        *lines, self._begun = (self._begun + read).split(b"\n")
        self._begun = self._begun[-_AT_ONCE:]
        said = (line.decode(errors="replace").strip() for line in lines)
        return [line for line in said if _FATAL.search(line)]
