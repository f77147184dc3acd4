"""A record that the agent and the MPS container exchange by a file."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from partita.agent.paths import write_file

__all__ = ["SharedFile"]

_adapter: Final[Callable[..., TypeAdapter[Any]]] = cache(TypeAdapter)


class SharedFile:
    """A dataclass that is kept as JSON in a file of `partita.agent.paths.Paths`."""

    __slots__ = ()

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the file; None if it is missing or not valid."""
        try:
            found: Self = _adapter(cls).validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return found

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_file(path, _adapter(type(self)).dump_json(self).decode())
