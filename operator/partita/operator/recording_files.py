"""The files of a recording: one open per partition, rotated, compressed, bounded."""

import gzip
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

__all__ = ["RecordingFiles"]

PARTS = 64
"""A file is rotated at this part of the limit: what goes when the limit is reached is little."""
LARGEST_FILE = 16 << 20
"""Bytes at which a file is rotated at the latest: what is still uncompressed stays small."""
MOST_OPEN = 16
"""Files open at the same time, one per partition; together they are a quarter of the limit."""
MOST_FILES = 512
"""Files kept, however small they are."""
_NAME_LENGTH = 200
"""Characters of a partition's name in a file's: most file systems take 255 in all."""


class RecordingFiles:
    """Appends lines to `<time>_<partition>.jsonl` in a folder, and keeps the folder bounded.

    A full file is compressed to `.jsonl.gz`. Where files together exceed the limit, the oldest of
    the partition that has the most goes first, so that a busy partition does not drive out the
    record of a quiet one. Not for use in several threads.

    Parameters
    ----------
    limit
        Bytes of all files. A line is written whole before it counts.
    """

    def __init__(
        self, folder: Path, *, limit: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.folder = folder
        self._limit = limit
        self._full = min(LARGEST_FILE, max(limit // PARTS, 1))
        self._now = now
        self._open: dict[str, tuple[Path, BinaryIO]] = {}

    def write(self, partition: str, pieces: Iterable[bytes]) -> None:
        """Append one line.

        Raises
        ------
        OSError
            It could not be written; nothing of it stays, if the file can still be shortened, and
            the next line starts a new one.
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
        self._open[partition] = path, file  # the last in order is the one used last
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
        while len(self._open) >= MOST_OPEN:
            self._rotate(next(iter(self._open)))
        self._prune()
        # Two operators may share a folder: no file is ever opened twice.
        path = self.folder / f"{self._stamp()}_{partition[:_NAME_LENGTH]}.jsonl"
        return path, path.open("xb")

    def _stamp(self) -> str:
        return self._now().strftime("%Y%m%dT%H%M%S.%fZ")

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
            with suppress(OSError):  # it stays as it is: larger, and as good
                hidden.unlink()

    def _prune(self) -> None:
        """Remove the oldest files until limit and number hold."""
        opened = {path for path, _ in self._open.values()}
        sizes: dict[str, list[tuple[Path, int]]] = {}
        for path in sorted(self.folder.glob("*_*.jsonl*")):
            packed = path.with_name(f"{path.name}.gz")
            if path in opened or not path.name.endswith((".jsonl", ".jsonl.gz")):
                continue
            with suppress(FileNotFoundError):
                if packed.exists():
                    path.unlink()  # we were ended between the two
                    continue
                partition = path.name.partition("_")[2].partition(".jsonl")[0]
                sizes.setdefault(partition, []).append((path, path.stat().st_size))
        capacity = self._limit - (len(opened) + 1) * self._full
        count = MOST_FILES - len(opened) - 1
        total = {name: sum(size for _, size in files) for name, files in sizes.items()}
        while sum(total.values()) > max(capacity, 0) or sum(map(len, sizes.values())) > count:
            name = max((n for n in sizes if sizes[n]), key=lambda n: total[n])
            path, size = sizes[name].pop(0)
            path.unlink(missing_ok=True)
            total[name] -= size


def _abandon(path: Path, file: BinaryIO, length: int) -> None:
    """Shorten a file to what was good."""
    with suppress(OSError):
        file.close()  # it still tries to write what is in its buffer
    with suppress(OSError):
        if length:
            os.truncate(path, length)
        else:
            path.unlink()
