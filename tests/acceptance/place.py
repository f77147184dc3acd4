"""Starts a program in a cgroup, or without /dev/shm.

python -m acceptance.place [--cgroup FOLDER] [--without-shm] -- COMMAND...
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["placed"]

_NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS, unshare(2)."""
_PRIVATE = (1 << 18) | (1 << 14)
"""MS_PRIVATE and MS_REC, mount(2): what is mounted here is not seen elsewhere."""
_READ_ONLY = 1
"""MS_RDONLY, mount(2)."""


def placed(
    command: Sequence[str], *, cgroup: Path | None = None, without_shm: bool = False
) -> list[str]:
    """Return the command that starts `command` so."""
    options = [] if cgroup is None else ["--cgroup", str(cgroup)]
    options += ["--without-shm"] if without_shm else []
    return [sys.executable, "-m", "acceptance.place", *options, "--", *command]


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _hide_shm() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_NEW_MOUNTS), "unshare")
    _check(libc.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None), "mount")
    shm = libc.mount(b"none", b"/dev/shm", b"tmpfs", ctypes.c_ulong(_READ_ONLY), b"size=4k")
    _check(shm, "mount /dev/shm")


def main(arguments: Sequence[str]) -> None:
    """Become the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cgroup", type=Path)
    parser.add_argument("--without-shm", action="store_true")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    if given.cgroup is not None:
        (given.cgroup / "cgroup.procs").write_text(f"{os.getpid()}\n")
    if given.without_shm:
        _hide_shm()
    os.execvp(given.command[0], given.command)


if __name__ == "__main__":
    main(sys.argv[1:])
