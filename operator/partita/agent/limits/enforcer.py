"""Terminates processes that violate a limit, and writes an Event about each."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from partita.agent.allocations import Key
from partita.agent.limits.violations import Violation
from partita.agent.times import AgentTimes
from partita.kube.events import Events

__all__ = ["LimitEnforcer"]


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
