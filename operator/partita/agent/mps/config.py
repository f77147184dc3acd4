"""The file with which the agent configures `partita agent mps` in the Pod's other container."""

from dataclasses import dataclass

from partita.agent.shared_file import SharedFile

__all__ = ["MPSConfig"]


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
