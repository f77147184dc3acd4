"""What the agent knows of its GPU at one time, as the status and the metrics show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from partita.agent.health import ServerConditions
from partita.models import Condition
from partita.models.gpu_server import LimitMismatch
from partita.models.quantities import format_time, mebibytes

__all__ = ["GPUReport", "JobReport"]


@dataclass(frozen=True, slots=True)
class JobReport:
    """Usage of the GPU by one job."""

    memory: int
    """Current memory, bytes; 0 if no program of the job is on the GPU."""
    peak: int
    """Largest memory so far, bytes."""
    first_use: float | None
    """Time of the job's first use of the GPU, from `time.time`."""
    utilization: float | None = None
    """GPU utilisation in the last minute, percent; None if it is not measured."""
    excess: int = 0
    """Largest number of MPS clients if one was terminated because of too many clients, else 0."""
    mismatch: LimitMismatch | None = None
    """The wrong memory limit of one of its containers; None if no limit is known to be wrong."""
    idle_since: float | None = None
    """Time since which none of its kernels has run, from `time.time`; None if it is not idle."""
    limit: int = 0
    """Bytes that it may use, without CUDA contexts. Only the pace of reports depends on it."""

    def dump(self) -> dict[str, Any]:
        """Return the usage as in the GPUServer's status."""
        first, busy, idle = self.first_use, self.utilization, self.idle_since
        return {
            "memory": mebibytes(self.memory),
            "peakMemory": mebibytes(self.peak),
            **({"gpuUtilization": round(busy)} if busy is not None else {}),
            **({"firstUse": _time(first)} if first else {}),
            **({"idleSince": _time(idle)} if idle is not None else {}),
            **({"excessProcesses": self.excess} if self.excess else {}),
            **({"limitMismatch": self.mismatch.dump()} if self.mismatch else {}),
        }


@lru_cache(maxsize=256)
def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


@dataclass(frozen=True, slots=True)
class GPUReport:
    """The content of a status."""

    facts: Mapping[str, Any]
    """Fields of the status that describe the GPU itself; a field that is None is unset."""
    conditions: ServerConditions
    total: int
    """The GPU's total memory, bytes."""
    memory: int
    """Bytes in use on the GPU."""
    utilization: int
    """GPU utilisation in the last minute, percent."""
    jobs: Mapping[str, JobReport] = field(default_factory=dict)
    """By UID."""
    mps: Mapping[str, Any] | None = None
    """State and number of clients; None in modes without MPS."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Processes without an allocation, as in the status; empty if none exist."""
    support: tuple[Condition, ...] = ()
    """Conditions about what the GPU supports, besides `Ready` and `Faulted`."""
