"""Which processes on the GPU belong to which allocation, and which belong to none.

A process belongs to an allocation if it runs in the allocation's Pod. The MPS server and the other
processes of the server Pod are Partita's own. What is left is unknown (`unknown_processes`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from partita.agent.allocations import AllocationReader, LedgerEntry
from partita.agent.attribution.claim_sharers import ClaimSharers
from partita.agent.attribution.processes import PodsOfProcesses
from partita.agent.attribution.unknown_processes import UnknownProcessTracker

__all__ = ["AllocatedProcesses"]


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
    unknown
        Finds the processes without an allocation.
    server_pod
        UID of the Pod of the agent and of MPS.
    """

    ledger: AllocationReader
    pods: PodsOfProcesses
    sharers: ClaimSharers
    unknown: UnknownProcessTracker
    server_pod: str
    mps_servers: frozenset[int] = frozenset()
    """PIDs of the MPS servers of the GPU."""
    read_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the ledger should be read soon."""

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
        own = set(self.mps_servers)
        for pid, pod in pods.items():
            if pod is None:
                continue
            if pod == self.server_pod:
                own.add(pid)
            elif pod in by_pod:
                found[pid] = by_pod[pod]
        self.unknown.update(at, memory, pods, found.keys() | own, self.ledger.complete_at)
        if self.unknown.ledger_outdated or self._unknown_pods - self.sharers.read:
            self.read_now.set()
        return found

    def without_allocation(self, pids: Iterable[int]) -> set[int]:
        """Return the processes that belong to no allocation of this GPU."""
        known = self.ledger.by_pod()
        return {pid for pid, pod in self.pods.of(set(pids)).items() if pod not in known}

    async def find_sharers(self) -> None:
        """Find out which Pods of unknown processes use claims of other Pods."""
        await self.sharers.update(self._unknown_pods)

    @property
    def _unknown_pods(self) -> set[str]:
        return {process.pod for process in self.unknown.found if process.pod is not None}
