"""Operators whose wall clocks are wrong, each as it is told, also while it runs."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

__all__ = ["WrongClock", "build_clock"]

SOURCE = Path(__file__).with_name("clock.c")


def build_clock(folder: Path) -> Path:
    """Compile the library to be preloaded; it needs gcc, as the fake GPU does."""
    library = folder / "clock.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE)],
        check=True,
    )
    return library


class WrongClock:
    """One wall clock, right at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8))
        self.seconds = 0.0

    def set_off(self, seconds: float) -> None:
        """Let it be ahead by so many seconds, from now on."""
        self.seconds = seconds
        # In place: processes that follow it have mapped this very file.
        with self.path.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))
