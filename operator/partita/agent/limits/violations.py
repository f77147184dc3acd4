"""Finds and ends processes with which a job exceeds its allocation of memory or of MPS clients.

MPS itself refuses memory above a job's limit, but a program can unset the variables of the limit.
NVML includes the CUDA context in the memory of a process, and MPS does not. A context is a few
hundred MiB that CUDA needs before the program allocates anything. So a job may use its allocation
and one context for each of its processes. The size of a context depends on GPU and driver. It is
estimated as the smallest memory that was observed for any process.

A GPU serves a limited number of MPS clients, and jobs are placed by the number that each states as
`processes`. NVML lists processes, so a process with several contexts counts once here, although
MPS counts each context as a client.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.allocations import Key, LedgerEntry
from partita.agent.limits.job_limits import LimitedUse
from partita.agent.times import AgentTimes
from partita.constants import ANNOTATION_PROCESSES
from partita.kube.events import Events, EventSubject
from partita.models.base import Resource
from partita.models.quantities import mebibytes

__all__ = [
    "EXCESS_FOR",
    "LARGEST_CONTEXT",
    "SETTLED_AFTER",
    "SMALLEST_CONTEXT",
    "ClientLimit",
    "ContextSize",
    "LimitEnforcer",
    "Violation",
    "memory_violations",
]

LARGEST_CONTEXT: Final = 640 << 20
"""Bytes allowed for a context before one was measured. An assumption: CUDA 12 on an H100 takes
about 500 MiB, older GPUs less."""
SMALLEST_CONTEXT: Final = 128 << 20
"""Bytes allowed for a context at least: one value of a context that is being made or freed must
not count against all later jobs.

An assumption (no check): NVML reports less of a context only while it is made or freed. If a whole
one takes less, a program may use the difference beyond its allocation."""
SETTLED_AFTER: Final = 2.0
"""Seconds after which a process has its whole context; until then NVML reports a part of it. An
assumption."""
EXCESS_FOR: Final = 1.0
"""Seconds for which a job must have too many clients before this is a violation. A client that
exits is still listed for a moment while its successor starts. An assumption."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A process to terminate, and the content of the Event about it."""

    pid: int
    about: Resource | EventSubject
    """What the Event is about."""
    reason: str
    """Reason of the Event."""
    used: str
    """What was used, and what was allocated."""
    remedy: str = ""
    """What its user has to change."""
    key: Key | None = None
    """The run that exceeds its allocation; None if the process belongs to none."""
    clients: int = 0
    """MPS clients of the run if they are too many."""
    terminate: bool = True
    """Whether the process is terminated. Otherwise only an Event is written."""


class ContextSize:
    """Estimates the memory that a process uses before its program allocates any."""

    def __init__(self) -> None:
        self.bytes = LARGEST_CONTEXT
        self._first: dict[int, float] = {}

    def add(self, at: float, memory: Mapping[int, int]) -> None:
        """Update the estimate from the processes of jobs; a process without memory is ignored.

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
        self.bytes = max(SMALLEST_CONTEXT, min([self.bytes, *settled]))


class ClientLimit:
    """Finds jobs with more MPS clients than allocated."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._exceeded_since: dict[Key, float] = {}

    def violations(self, at: float, allocations: Mapping[int, LedgerEntry]) -> list[Violation]:
        """Return the newest client of each job that has too many clients.

        Parameters
        ----------
        at
            Seconds.
        allocations
            Allocation by PID.
        """
        self._first = {pid: self._first.get(pid, at) for pid in allocations}
        clients = Counter(allocations.values())
        exceeded = [a for a, count in clients.items() if count > a.clients]
        self._exceeded_since = {a.key: self._exceeded_since.get(a.key, at) for a in exceeded}
        return [
            Violation(
                max(
                    (pid for pid, own in allocations.items() if own == allocation),
                    key=lambda pid: (self._first[pid], pid),
                ),
                allocation.subject,
                "AboveProcesses",
                f"{allocation.run} used {clients[allocation]} MPS clients with "
                f"{allocation.clients} allocated",
                _raise(allocation, "spec.processes", f"the annotation {ANNOTATION_PROCESSES}"),
                allocation.key,
                clients=clients[allocation],
            )
            for allocation in exceeded
            if at - self._exceeded_since[allocation.key] >= EXCESS_FOR
        ]


def memory_violations(
    memory: Mapping[int, int],
    allocations: Mapping[int, LedgerEntry],
    context: int,
    counted: Mapping[Key, LimitedUse] | None = None,
) -> list[Violation]:
    """Return the largest process of each job that uses too much memory.

    Terminating this process may be enough; otherwise the next sample finds another one. A process
    of a job that the driver limits is terminated only if the driver itself counts too much.
    Otherwise NVML lists memory that the driver does not limit, such as managed memory
    (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Known Limitations").

    Parameters
    ----------
    memory
        Bytes by PID.
    allocations
        Allocation by PID.
    context
        Bytes that each process may use in addition.
    counted
        The memory of those jobs that the driver limits.
    """
    processes: dict[LedgerEntry, list[int]] = defaultdict(list)
    for pid in memory:
        if pid in allocations:
            processes[allocations[pid]].append(pid)
    found = []
    for allocation, pids in processes.items():
        used = sum(memory[pid] for pid in pids)
        allowed = allocation.ceiling + context * len(pids)
        use = (counted or {}).get(allocation.key)
        if use is not None:
            used, allowed = max(used, use.used), use.limit
        if used > allowed:
            largest = max(pids, key=lambda pid: (memory[pid], pid))
            terminate = use is None or use.used > use.limit
            text = (
                f"{allocation.run} used {mebibytes(used)} of GPU memory with "
                f"{mebibytes(allocation.ceiling)} allocated"
            )
            if not terminate:
                text += ": memory that the driver does not limit, such as managed memory"
            remedy = _raise(allocation, "spec.gpuMemory", "the memory of the claim")
            found.append(
                Violation(
                    largest, allocation.subject, "AboveAllocation", text, remedy, allocation.key,
                    terminate=terminate,
                )
            )  # fmt: skip
    return found


def _raise(allocation: LedgerEntry, of_job: str, of_claim: str) -> str:
    return f"raise {of_job if allocation.job else of_claim}"


@dataclass(slots=True)
class LimitEnforcer:
    """Terminates processes of one GPU, with at most one termination in progress for each.

    Parameters
    ----------
    events
        Writes the Events.
    terminate
        Terminates the work of a PID; returns the error, empty on success.
    times
        How long it waits.
    """

    events: Events
    terminate: Callable[[int], Awaitable[str]]
    times: AgentTimes
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _excess: dict[Key, int] = field(default_factory=dict)
    _alarmed: set[Key] = field(default_factory=set)
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    def enforce(self, violation: Violation) -> None:
        """Terminate the process of a violation, or only write an Event, once for a run."""
        key, pid = violation.key, violation.pid
        if violation.terminate:
            if pid not in self._tasks:
                task = self._tasks[pid] = asyncio.create_task(self._end(violation))
                task.add_done_callback(lambda _: self._tasks.pop(pid))
        elif key is not None and key not in self._alarmed:
            self._alarmed.add(key)
            self._warn(violation, "nothing was terminated")

    def excess_clients(self, key: Key) -> int:
        """Return the largest number of MPS clients of a run if it exceeded its limit, else 0.

        The limit counts as exceeded after a client was terminated for this reason.
        """
        return self._excess.get(key, 0)

    def forget(self, key: Key) -> None:
        """Delete the stored data of a run."""
        self._excess.pop(key, None)
        self._alarmed.discard(key)

    async def close(self) -> None:
        """Cancel all terminations in progress."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self, violation: Violation) -> None:
        error, key = await self.terminate(violation.pid), violation.key
        if not error and violation.clients and key is not None:
            self._excess[key] = max(violation.clients, self.excess_clients(key))
        outcome = f"could not be terminated: {error}" if error else "was terminated"
        self._warn(violation, f"process {violation.pid} {outcome}")
        await asyncio.sleep(self.times.terminate_again)

    def _warn(self, violation: Violation, outcome: str) -> None:
        message = "; ".join(filter(None, (violation.used, outcome, violation.remedy)))
        self._log.warning("violation", reason=violation.reason, message=message)
        self.events.warn(violation.about, violation.reason, message)
