"""The files of recordings: one open file per partition, rotated, compressed, bounded in size."""

import gzip
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

__all__ = ["RecordingFiles"]

PARTS = 64
"""A file is rotated at this fraction of the limit, so that pruning removes little at once."""
LARGEST_FILE = 16 << 20
"""Maximum bytes of an uncompressed file."""
_NAME_LENGTH = 200
"""Maximum characters of a partition's name in a file name: most file systems allow 255."""


@dataclass
class RecordingFiles:
    """Appends lines to `<time>_<partition>.jsonl` in a folder, and keeps the folder bounded.

    A full file is compressed to `.jsonl.gz`. If all files exceed the limit, the oldest file of the
    partition with the most bytes is removed, so that a busy partition does not displace the record
    of a quiet one. Not thread-safe.

    Parameters
    ----------
    limit
        Maximum bytes of all files. A line is written completely before it counts.
    most_files
        Maximum number of files, independent of their size.
    most_open
        Maximum number of open files, one per partition: by default a quarter of the limit together.
    """

    folder: Path
    limit: int
    most_files: int = 512
    most_open: int = 16
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._full = min(LARGEST_FILE, max(self.limit // PARTS, 1))
        self._open: dict[str, tuple[Path, BinaryIO]] = {}

    def write(self, partition: str, pieces: Iterable[bytes]) -> None:
        """Append one line.

        Raises
        ------
        OSError
            If the line could not be written. It is removed again if the file can be truncated, and
            the next line starts a new file.
        """
        path, file = (
            self._open.pop(partition) if partition in self._open else self._start(partition)
        )
        before = file.tell()
        try:
            for piece in pieces:
                file.write(piece)
            file.flush()
        except Exception:
            _abandon(path, file, before)
            raise
        self._open[partition] = path, file  # ordered by last use
        if file.tell() >= self._full:
            self._rotate(partition)
            self._prune()

    def close(self) -> None:
        """Close the files; the next line of each partition starts a new one."""
        while self._open:
            _, (_, file) = self._open.popitem()
            with suppress(OSError):
                file.close()

    def _start(self, partition: str) -> tuple[Path, BinaryIO]:
        self.folder.mkdir(parents=True, exist_ok=True)
        while len(self._open) >= self.most_open:
            self._rotate(next(iter(self._open)))
        self._prune()
        # Two operators may share a folder: a file is never opened twice.
        name = f"{self.now():%Y%m%dT%H%M%S.%fZ}_{partition[:_NAME_LENGTH]}.jsonl"
        path = self.folder / name
        return path, path.open("xb")

    def _rotate(self, partition: str) -> None:
        path, file = self._open.pop(partition)
        file.close()
        hidden = path.with_name(f".{path.name}.gz")
        try:
            with path.open("rb") as plain, gzip.open(hidden, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(plain, packed)
            hidden.replace(path.with_name(f"{path.name}.gz"))
            path.unlink()
        except OSError:
            with suppress(OSError):  # it stays uncompressed
                hidden.unlink()

    def _prune(self) -> None:
        """Remove the oldest files until size and number are within their limits."""
        opened = {path for path, _ in self._open.values()}
        sizes: dict[str, list[tuple[Path, int]]] = {}
        for path in sorted(self.folder.glob("*_*.jsonl*")):
            packed = path.with_name(f"{path.name}.gz")
            if path in opened or not path.name.endswith((".jsonl", ".jsonl.gz")):
                continue
            with suppress(FileNotFoundError):
                if packed.exists():
                    path.unlink()  # the process ended before this step
                    continue
                partition = path.name.partition("_")[2].partition(".jsonl")[0]
                sizes.setdefault(partition, []).append((path, path.stat().st_size))
        space = self.limit - (len(opened) + 1) * self._full
        count = self.most_files - len(opened) - 1
        total = {name: sum(size for _, size in files) for name, files in sizes.items()}
        while sum(total.values()) > max(space, 0) or sum(map(len, sizes.values())) > count:
            name = max((n for n in sizes if sizes[n]), key=lambda n: total[n])
            path, size = sizes[name].pop(0)
            path.unlink(missing_ok=True)
            total[name] -= size


def _abandon(path: Path, file: BinaryIO, length: int) -> None:
    """Truncate a file to its last complete line."""
    with suppress(OSError):
        file.close()  # closing flushes the buffer
    with suppress(OSError):
        if length:
            os.truncate(path, length)
        else:
            path.unlink()
