"""Frees the memory that only the start of the agent needed."""

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from partita.garbage_collection import collect_often

__all__ = ["free_start_memory", "unchanged_files"]

_MAPPING: Final = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-.p \S+ \S+ \S+ +/", re.ASCII)
"""A private mapping of a file that is not writable, in proc_pid_maps(5)."""


def free_start_memory() -> None:
    """Free what is not needed after the start; call it once all modules are imported.

    Code of libraries that runs again is read from the page cache again.
    """
    collect_often()
    with suppress(AttributeError, OSError):  # only glibc on Linux has these functions
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        for start, length in unchanged_files(Path("/proc/self/smaps").read_text()):
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def unchanged_files(smaps: str) -> Iterator[tuple[int, int]]:
    """Return address and length of each mapping of a file whose pages the kernel can read again.

    madvise(2), MADV_DONTNEED: later accesses read the pages from the file again. A page that the
    process has changed, such as one with relocated addresses, would be lost. So a mapping with
    such a page ("Anonymous", proc_pid_smaps(5)) is left out.
    """
    start = length = 0
    for line in smaps.splitlines():
        if found := _MAPPING.match(line):
            start, end = int(found[1], 16), int(found[2], 16)
            length = end - start
        elif not line[0].isupper():
            length = 0
        elif length and line.startswith("Anonymous:") and line.split()[1] == "0":
            yield start, length
