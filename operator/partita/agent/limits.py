"""The second line: a process above what its job has allocated is ended, and no other.

The first line is MPS itself, which refuses the allocation; but a program can unset its variables.
NVML counts with a process what MPS does not: the context, a few hundred MiB that CUDA needs
before the program has anything. So a job may have its allocation and one context for each of its
processes. How large a context is depends on GPU and driver and is learnt from the processes
themselves: the smallest that one of them was ever seen with.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from partita.agent.allocations import AttemptAllocation

__all__ = ["LARGEST_CONTEXT", "SETTLED_AFTER", "Contexts", "LimitViolation", "offences"]

LARGEST_CONTEXT: Final = 640 << 20
"""Bytes allowed for a context before one was seen. An assumption: CUDA 12 on an H100 takes about
500 MiB, older GPUs less."""


SETTLED_AFTER: Final = 2.0
"""Seconds after which a process has its whole context: while it is being made, NVML shows a part
of it. An assumption."""


class Contexts:
    """Learns how much memory a process has before its program asks for any."""

    def __init__(self) -> None:
        self.size = LARGEST_CONTEXT
        """Bytes."""
        self._first: dict[int, float] = {}

    def see(self, at: float, memory: Mapping[int, int]) -> None:
        """Look at the processes of jobs; a process with nothing yet tells nothing.

        Parameters
        ----------
        at
            Seconds.
        memory
            Bytes by PID.
        """
        self._first = {pid: self._first.get(pid, at) for pid in memory}
        settled = (
            size for pid, size in memory.items() if size and at - self._first[pid] >= SETTLED_AFTER
        )
        self.size = min([self.size, *settled])


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A process that is to go."""

    pid: int
    allocation: AttemptAllocation
    used: int
    """Bytes that the whole job has."""


def offences(
    memory: Mapping[int, int], allocations: Mapping[int, AttemptAllocation], context: int
) -> list[LimitViolation]:
    """Find, of each job above its allocation, the process that has most.

    Ending that one alone may be enough; if not, the next look finds the next.

    Parameters
    ----------
    memory
        Bytes by PID.
    allocations
        Allocation by PID, of processes in jobs' Pods.
    context
        Bytes that each process may have beside.
    """
    processes: dict[AttemptAllocation, list[int]] = defaultdict(list)
    for pid in memory:
        if pid in allocations:
            processes[allocations[pid]].append(pid)
    found = []
    for allocation, pids in processes.items():
        used = sum(memory[pid] for pid in pids)
        if used > allocation.memory + context * len(pids):
            found.append(
                LimitViolation(max(pids, key=lambda pid: (memory[pid], pid)), allocation, used)
            )
    return found
