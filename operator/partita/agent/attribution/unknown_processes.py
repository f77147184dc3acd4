"""Finds processes on the GPU without an allocation.

A process has an allocation if it runs in the Pod of an attempt in the ledger, according to its
cgroup. The MPS server and the other processes of the server Pod are not counted. A process is
counted only a few seconds after it was first observed (`AgentTimes.unknown_after`), and only if the
ledger was read since then. The Pod of a new process may have been allocated after the last read,
and the process of a released job may still be exiting.

A process in a Pod that uses a claim of another Pod is always terminated (`claim_sharers`). The
policy `Terminate` applies to all other processes in Pods. A process of the node itself, such as a
display server or a diagnosis of DCGM, is counted and never terminated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partita.agent.times import AgentTimes
from partita.models.quantities import mebibytes

__all__ = ["UnknownProcess", "UnknownProcessTracker", "summary"]


@dataclass(frozen=True, slots=True)
class UnknownProcess:
    """A process without an allocation."""

    pid: int
    pod: str | None
    """UID of its Pod; None outside Pods."""
    memory: int
    """Bytes."""


class UnknownProcessTracker:
    """The processes of one GPU without an allocation.

    Parameters
    ----------
    times
        How long it waits.
    """

    def __init__(self, times: AgentTimes) -> None:
        self._times = times
        self.found: tuple[UnknownProcess, ...] = ()
        self.ledger_outdated = False
        """Whether the ledger must be read again to decide about a process."""
        self._first: dict[int, float] = {}

    def update(
        self,
        at: float,
        memory: Mapping[int, int],
        pods: Mapping[int, str | None],
        known: Iterable[int],
        ledger_read: float | None,
    ) -> None:
        """Update the unknown processes from a sample.

        Parameters
        ----------
        at
            Seconds.
        memory
            Bytes by PID, of all processes.
        pods
            UID of each process's Pod; None outside Pods.
        known
            PIDs with an allocation, and those of Partita itself.
        ledger_read
            Time in seconds of the last read of the ledger and all its Pods; None if never.
        """
        unknown = memory.keys() - set(known)
        self._first = {pid: self._first.get(pid, at) for pid in unknown}
        old = {
            pid: first
            for pid, first in self._first.items()
            if at - first >= self._times.unknown_after
        }
        self.found = tuple(
            UnknownProcess(pid, pods.get(pid), memory[pid])
            for pid, first in sorted(old.items())
            if ledger_read is not None and ledger_read > first
        )
        self.ledger_outdated = len(self.found) < len(old)


def summary(found: Sequence[UnknownProcess]) -> dict[str, Any]:
    """Return the field `unknownProcesses` of the status, which every user may read."""
    if not found:
        return {}
    return {
        "count": len(found),
        "inPods": sum(process.pod is not None for process in found),
        "memory": mebibytes(sum(process.memory for process in found)),
    }
