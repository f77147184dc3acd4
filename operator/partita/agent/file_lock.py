"""A lock between processes that the kernel releases when its holder exits."""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from partita.agent.paths import writing

__all__ = ["FileLock"]


class FileLock:
    """A lock on a file.

    Parameters
    ----------
    path
        The file; the holder writes its PID there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def acquire(self) -> bool:
        """Try to acquire the lock; return whether this process holds it."""
        if self._file is not None:
            return True
        directory = self._path.parent
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            try:
                file = self._path.open("a+")
            except FileNotFoundError:
                # An agent that exited removed the empty directory.
                return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        if not _is_at(file, self._path):
            # The last holder removed the file after it was opened here and before it was locked.
            file.close()
            return False
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return True

    def release(self, *, remove: bool = False) -> None:
        """Release the lock.

        Parameters
        ----------
        remove
            Remove the file, too: no other process will need it.
        """
        if self._file is not None:
            if remove:
                self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """Return the PID of the process that holds the lock; None if no process does."""
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
    """Return whether an open file is still the file at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
