"""Run a command that the kernel kills when the process that started it ends.

It runs as a script with `python -S`: it may import the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
"""``prctl`` option: the signal the kernel sends this process when its parent ends (Linux)."""


def _become(parent: int, command: Sequence[str]) -> None:
    """Tie this process to its parent's life, then become ``command``."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == parent:  # else it ended before the kernel was asked
        os.execvp(command[0], list(command))


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
