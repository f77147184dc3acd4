"""The files by which the agent and the Pod's other container, `partita agent mps`, tell each other.

The agent writes which control daemon the GPU needs, the MPS container which one it has started.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from partita.agent.paths import write_file

__all__ = ["MPSConfig", "MPSReport"]

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


@dataclass(frozen=True, slots=True)
class MPSConfig(SharedFile):
    """Configuration of the MPS control daemon."""

    uuid: str
    """UUID of the GPU; empty once the agent has released the GPU."""
    agent: int
    """The agent's PID. A file with another PID was left by an earlier agent and is ignored."""
    restarts: int = 0
    """Number of restarts that the agent has requested; an increase restarts MPS."""
    slots: int = 1
    """Number of slots: most claims on the GPU at the same time."""
    protocol: int = 2
    """Newest protocol that the daemon may have: 2 or 3."""
    static_sm: bool = False
    """Whether each slot gets static SM partitions."""

    def is_other_daemon(self, old: "MPSConfig") -> bool:
        """Return whether it requires another daemon than an older configuration, or none."""
        return (self.uuid, self.restarts) != (old.uuid, old.restarts)


@dataclass(frozen=True, slots=True)
class MPSReport(SharedFile):
    """The control daemon that was started last."""

    daemon: int
    """Its PID; 0 if it could not be started."""
    protocol: int
    """Its protocol: 2 or 3."""
    single_user: bool = False
    """Whether it serves the clients of one user at a time."""
    no_protocol_3: bool = False
    """Whether the daemon refuses protocol 3."""
    sm_partitions: tuple[str, ...] = ()
    """CUDA_MPS_SM_PARTITION of each slot; empty without static SM partitions."""
    no_sm_partitions: str = ""
    """Why the SMs could not be partitioned; empty if they were, or need not be."""
    started_in: float = 0.0
    """Seconds that it and its server took to start."""
