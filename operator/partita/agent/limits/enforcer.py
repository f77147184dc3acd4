"""Terminates processes that violate a limit, and writes an Event about each."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from partita.agent.allocations import Key
from partita.agent.attribution.claim_sharers import ONE_POD, ClaimSharer
from partita.agent.attribution.unknown_processes import UnknownProcess
from partita.agent.limits.violations import LimitViolation
from partita.agent.times import AgentTimes
from partita.kube.events import Events
from partita.models.base import Resource
from partita.models.quantities import mebibytes

__all__ = ["LimitEnforcer"]


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

    def __init__(
        self, events: Events, terminate: Callable[[int], Awaitable[str]], times: AgentTimes
    ) -> None:
        self._events = events
        self._times = times
        self._terminate = terminate
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._excess: dict[Key, int] = {}
        self._alarmed: set[Key] = set()
        self._log = structlog.get_logger(__name__)

    def limit(self, violation: LimitViolation) -> None:
        """Terminate a process with which a job exceeds its allocation, or write an Event."""
        if not violation.terminate:
            self._alarm(violation)
            return
        self._start(violation.pid, lambda: self._limit(violation))

    def unknown(self, process: UnknownProcess, server: Resource) -> None:
        """Terminate a process without an allocation."""
        self._start(process.pid, lambda: self._unknown(process, server))

    def sharer(self, process: UnknownProcess, sharer: ClaimSharer) -> None:
        """Terminate a process in a Pod that uses a claim of another Pod."""
        self._start(process.pid, lambda: self._sharer(process, sharer))

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

    def _start(self, pid: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if pid not in self._tasks:
            task = self._tasks[pid] = asyncio.create_task(work())
            task.add_done_callback(lambda _: self._tasks.pop(pid))

    def _alarm(self, violation: LimitViolation) -> None:
        """Write an Event, once for a run."""
        allocation = violation.allocation
        if allocation.key in self._alarmed:
            return
        self._alarmed.add(allocation.key)
        message = (
            f"{allocation.run} used {violation.used}: memory that the driver does not "
            f"limit, such as managed memory; nothing was terminated; {violation.remedy}"
        )
        self._log.warning("memory above limit", job=allocation.user, used=violation.used)
        self._events.warn(allocation.subject, violation.reason, message)

    async def _limit(self, violation: LimitViolation) -> None:
        allocation, pid = violation.allocation, violation.pid
        most = max(violation.clients, self.excess_clients(allocation.key))
        error = await self._terminate(pid)
        facts = f"{allocation.run} used {violation.used}"
        self._log.warning(
            "limit exceeded", job=allocation.user, pid=pid, facts=facts, not_terminated=error
        )
        if not error and most:
            self._excess[allocation.key] = most
        outcome = f"could not be terminated: {error}" if error else "was terminated"
        message = f"{facts}; process {pid} {outcome}; {violation.remedy}"
        self._events.warn(allocation.subject, violation.reason, message)
        await asyncio.sleep(self._times.terminate_again)

    async def _unknown(self, process: UnknownProcess, server: Resource) -> None:
        error = await self._terminate(process.pid)
        self._log.warning("unknown process", process=process, not_terminated=error)
        outcome = f"could not be terminated: {error}" if error else "was terminated"
        message = (
            f"a process in a Pod used {mebibytes(process.memory)} of the GPU without an "
            f"allocation; it {outcome}"
        )
        self._events.warn(server, "UnknownProcessTerminated", message)
        await asyncio.sleep(self._times.terminate_again)

    async def _sharer(self, process: UnknownProcess, sharer: ClaimSharer) -> None:
        error = await self._terminate(process.pid)
        self._log.warning("shared claim", process=process, sharer=sharer, not_terminated=error)
        outcome = f"could not be terminated: {error}" if error else "was terminated"
        message = (
            f"ResourceClaim {sharer.claim} is allocated for Pod {sharer.owner}; a process used "
            f"{mebibytes(process.memory)} of the GPU and {outcome}; {ONE_POD}"
        )
        self._events.warn(sharer.pod, "ClaimShared", message)
        await asyncio.sleep(self._times.terminate_again)
