"""Reads new lines of the MPS server's log and finds fatal faults in them.

A server is in FAULT only until its clients have exited, and most programs exit at once. A later
query of the server's state reports no fault, but the log still contains it.
"""

import os
import re
from pathlib import Path
from typing import Final

__all__ = ["MPSServerLog"]

_NAME: Final = "server.log"
"""Contains the server's startup and shutdown and the status of its clients
(https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html,
CUDA_MPS_LOG_DIRECTORY)."""
_FATAL: Final = re.compile(r"(?<![Nn]on-)\b(?:(?i:fatal)|FAULT)\b")
"""Matches a line that reports a fault of all clients. An assumption: NVIDIA does not document the
messages. NVIDIA calls such an error "fatal" (docs.nvidia.com/deploy/mps, "Error Containment";
"Server encountered a fatal exception" in https://github.com/NVIDIA/k8s-device-plugin/issues/685).
FAULT is the name of the server's state."""


class MPSServerLog:
    """New lines of the log of one GPU's MPS server.

    Parameters
    ----------
    directory
        CUDA_MPS_LOG_DIRECTORY of the control daemon. Existing lines are ignored.
    at_once
        Bytes read by one call; the next call reads the rest.
    """

    def __init__(self, directory: Path, at_once: int = 1 << 16) -> None:
        self._at_once = at_once
        self._path = directory / _NAME
        self._inode = 0
        self._offset = 0
        self._partial = b""
        """The start of a line that is not written completely yet."""
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
                    self._inode, self._offset, self._partial = found.st_ino, 0, b""
                if found.st_size == self._offset:
                    return []
                file.seek(self._offset)
                read = file.read(self._at_once)
        except OSError:
            return []
        self._offset += len(read)
        *lines, self._partial = (self._partial + read).split(b"\n")
        self._partial = self._partial[-self._at_once :]
        lines_read = (line.decode(errors="replace").strip() for line in lines)
        return [line for line in lines_read if _FATAL.search(line)]
