"""Finds jobs that have more MPS clients than they were allocated.

A GPU serves a limited number of clients, and jobs are placed by the number that each one states as
`processes`. Of a job above it the newest client is ended. NVML lists processes, so a process with
several contexts counts once here, though each context takes one of the GPU's clients.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from partita.agent.allocations import AttemptAllocation

__all__ = ["ABOVE_FOR", "ClientCounter", "Surplus"]

ABOVE_FOR: Final = 1.0
"""Seconds for which a job must have too many clients: one that ends is still listed for a moment
while its successor starts. An assumption."""


@dataclass(frozen=True, slots=True)
class Surplus:
    """A client that is to go."""

    pid: int
    allocation: AttemptAllocation
    count: int
    """Clients that the whole job has."""


class ClientCounter:
    """The clients of the jobs of one GPU."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._above: dict[tuple[str, int], float] = {}

    def see(self, at: float, allocations: Mapping[int, AttemptAllocation]) -> list[Surplus]:
        """Look at the clients; return the newest one of each job with too many.

        Parameters
        ----------
        at
            Seconds.
        allocations
            Allocation by PID.
        """
        self._first = {pid: self._first.get(pid, at) for pid in allocations}
        clients: dict[AttemptAllocation, list[int]] = defaultdict(list)
        for pid, allocation in allocations.items():
            clients[allocation].append(pid)
        above = {b: pids for b, pids in clients.items() if len(pids) > b.clients}
        self._above = {b.key: self._above.get(b.key, at) for b in above}
        return [
            Surplus(max(pids, key=lambda pid: (self._first[pid], pid)), allocation, len(pids))
            for allocation, pids in above.items()
            if at - self._above[allocation.key] >= ABOVE_FOR
        ]
