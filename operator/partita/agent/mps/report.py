"""The file with which `partita agent mps` tells the agent which control daemon runs."""

from dataclasses import dataclass

from partita.agent.shared_file import SharedFile

__all__ = ["MPSReport"]


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
