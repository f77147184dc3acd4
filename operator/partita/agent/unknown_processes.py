"""Finds processes on the GPU without an allocation.

A process has an allocation if its cgroup is that of the Pod of an attempt in the ledger. Not
counted are the MPS server and the other processes of the server Pod. A process counts only after
`UNKNOWN_AFTER`, and after the ledger was read since it started: the Pod of a process that has just
started may have been allocated since the last read, and one of a job that was just released may
still be exiting.

The policy `Terminate` covers processes in Pods only. A process of the node itself, such as a
display server or a diagnosis of DCGM, is counted and never terminated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from partita.models.quantities import mebibytes

__all__ = ["UNKNOWN_AFTER", "UnknownProcess", "UnknownProcessTracker", "summary"]

UNKNOWN_AFTER: Final = 10.0
"""Seconds for which a process must run. An assumption: twice the interval between two reads of the
ledger."""


@dataclass(frozen=True, slots=True)
class UnknownProcess:
    """A process without an allocation."""

    pid: int
    pod: str | None
    """UID of its Pod; None outside Pods."""
    memory: int
    """Bytes."""


class UnknownProcessTracker:
    """The processes of one GPU without an allocation."""

    def __init__(self) -> None:
        self.found: tuple[UnknownProcess, ...] = ()
        self._first: dict[int, float] = {}

    def update(
        self,
        at: float,
        memory: Mapping[int, int],
        pods: Mapping[int, str | None],
        known: Iterable[int],
        ledger_read: float | None,
    ) -> None:
        """Update the processes by a sample.

        Parameters
        ----------
        at
            Seconds.
        memory
            Bytes by PID, of all processes.
        pods
            UID of each process's Pod; None outside Pods.
        known
            PIDs with an allocation, and Partita's own.
        ledger_read
            When the ledger and all Pods in it were last read, in seconds; None if never.
        """
        unknown = memory.keys() - set(known)
        self._first = {pid: self._first.get(pid, at) for pid in unknown}
        self.found = tuple(
            UnknownProcess(pid, pods.get(pid), memory[pid])
            for pid, first in sorted(self._first.items())
            if at - first >= UNKNOWN_AFTER and ledger_read is not None and ledger_read > first
        )


def summary(found: Sequence[UnknownProcess]) -> dict[str, Any]:
    """Return the field `unknownProcesses` of the status, which every user may read."""
    if not found:
        return {}
    return {
        "count": len(found),
        "inPods": sum(process.pod is not None for process in found),
        "memory": mebibytes(sum(process.memory for process in found)),
    }
