"""Which processes on the GPU belong to which allocation, and which belong to none.

A process belongs to an allocation if it runs in the allocation's Pod, according to its cgroup. The
MPS server and the other processes of the server Pod are Partita's own. What is left is unknown. It
counts only a few seconds after it was first observed (`AgentTimes.unknown_after`), and only if the
ledger was read since then: the Pod of a new process may have been allocated after the last read,
and the process of a released job may still be exiting.

A process in a Pod that uses a claim of another Pod is always terminated (`claim_sharers`). The
policy `Terminate` applies to all other processes in Pods. A process of the node itself, such as a
display server or a diagnosis of DCGM, is counted and never terminated.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partita.agent.allocations import AllocationReader, LedgerEntry
from partita.agent.attribution.claim_sharers import ClaimSharers
from partita.agent.attribution.processes import PodsOfProcesses
from partita.agent.times import AgentTimes
from partita.models.quantities import mebibytes

__all__ = ["AllocatedProcesses", "UnknownProcess", "summary"]


@dataclass(frozen=True, slots=True)
class UnknownProcess:
    """A process without an allocation."""

    pid: int
    pod: str | None
    """UID of its Pod; None outside Pods."""
    memory: int
    """Bytes."""


def summary(found: Sequence[UnknownProcess]) -> dict[str, Any]:
    """Return the field `unknownProcesses` of the status, which every user may read."""
    if not found:
        return {}
    return {
        "count": len(found),
        "inPods": sum(process.pod is not None for process in found),
        "memory": mebibytes(sum(process.memory for process in found)),
    }


@dataclass(slots=True)
class AllocatedProcesses:
    """The processes on one GPU by their allocations.

    Parameters
    ----------
    ledger
        The allocations of the GPU.
    pods
        Finds the Pods of processes.
    sharers
        Finds the Pods that use claims of other Pods.
    server_pod
        UID of the Pod of the agent and of MPS.
    times
        How long it waits.
    """

    ledger: AllocationReader
    pods: PodsOfProcesses
    sharers: ClaimSharers
    server_pod: str
    times: AgentTimes
    mps_server: int = 0
    """PID of the MPS server of the GPU; 0 if none is known."""
    unknown: tuple[UnknownProcess, ...] = ()
    """The processes without an allocation."""
    read_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the ledger should be read soon."""
    _first: dict[int, float] = field(default_factory=dict)
    """When each process without an allocation was first observed, by PID."""

    def attribute(self, at: float, memory: Mapping[int, int]) -> dict[int, LedgerEntry]:
        """Return the allocation of each process that has one, and update the unknown ones.

        Parameters
        ----------
        at
            Time of the sample, from `time.time`.
        memory
            Bytes by PID, of all processes on the GPU.
        """
        by_pod, pods = self.ledger.by_pod(), self.pods.of(set(memory))
        found: dict[int, LedgerEntry] = {}
        own = {self.mps_server}
        for pid, pod in pods.items():
            if pod is None:
                continue
            if pod == self.server_pod:
                own.add(pid)
            elif pod in by_pod:
                found[pid] = by_pod[pod]
        unknown, after = memory.keys() - found.keys() - own, self.times.unknown_after
        self._first = {pid: self._first.get(pid, at) for pid in sorted(unknown)}
        old = {pid: first for pid, first in self._first.items() if at - first >= after}
        read = self.ledger.complete_at
        self.unknown = tuple(
            UnknownProcess(pid, pods[pid], memory[pid])
            for pid, first in old.items()
            if read is not None and read > first
        )
        if len(self.unknown) < len(old) or self.unknown_pods - self.sharers.read:
            self.read_now.set()
        return found

    def without_allocation(self, pids: Iterable[int]) -> set[int]:
        """Return the processes that belong to no allocation of this GPU."""
        known = self.ledger.by_pod()
        return {pid for pid, pod in self.pods.of(set(pids)).items() if pod not in known}

    @property
    def unknown_pods(self) -> set[str]:
        """UIDs of the Pods that have unknown processes."""
        return {process.pod for process in self.unknown if process.pod is not None}
