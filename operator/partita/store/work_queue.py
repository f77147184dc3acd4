"""Work queues between the informer and the consumers of its changes.

As in client-go, a queue contains keys and not objects. A key that is added several times is
processed once, with the state of the objects at that time. Namespaces take turns.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Generic, TypeVar

from partita.fair_queue import FairQueue
from partita.models.profile import ApplicationKey
from partita.times import Times

__all__ = ["WorkQueue", "WorkQueues", "utc_now", "wait_for_keys"]

K = TypeVar("K", str, ApplicationKey)


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class WorkQueue(Generic[K]):
    """A set of keys to process.

    Parameters
    ----------
    now
        The clock.
    ready
        Set when a key is added; queues with one consumer share it.
    namespace
        Returns the namespace of a key. Namespaces take turns.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        ready: asyncio.Event | None = None,
        namespace: Callable[[K], str] = lambda _: "",
    ) -> None:
        self._now = now
        self._namespace: Callable[[K], str] = namespace
        self._keys: FairQueue[K] = FairQueue()
        self._delayed: dict[K, datetime] = {}
        self._heap: list[tuple[datetime, K]] = []
        self._last_time = now()
        self._ready = ready or asyncio.Event()
        self.processing: set[K] = set()
        """Keys that `take` does not return, because writes for them are in progress."""

    def add(self, *keys: K) -> None:
        """Add keys. Ignores keys that are being processed: `done` adds these again."""
        for key in keys:
            if key not in self.processing:
                self._keys.add(key, self._namespace(key))
                self._ready.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after a delay. Of several delays for one key, the earliest applies."""
        due = self._now() + timedelta(seconds=seconds)
        if key not in self._delayed or due < self._delayed[key]:
            self._delayed[key] = due
            heapq.heappush(self._heap, (due, key))
            self._ready.set()

    def take(self, most: float = inf) -> set[K]:
        """Remove and return the keys that are due, or the first of them."""
        now = self._now()
        # After the clock was set back, the due times are no longer valid: all keys are due.
        was_set_back, self._last_time = now < self._last_time, now
        while self._heap and (was_set_back or self._heap[0][0] <= now):
            due, key = heapq.heappop(self._heap)
            if self._delayed.get(key) == due:
                del self._delayed[key]
                self.add(key)
        taken: set[K] = set()
        while self._keys and len(taken) < most:
            key = self._keys.pop()
            if key not in self.processing:
                taken.add(key)
        return taken

    async def get(self, most: float = inf) -> set[K]:
        """Wait until a key is due, then remove and return as `take` does."""
        await wait_for_keys(self)
        return self.take(most)

    def start(self, *keys: K) -> None:
        """Mark keys as being processed, until `done` is called for them."""
        self.processing.update(keys)

    def done(self, key: K, after: float = 0.0) -> None:
        """End the processing of a key and add it again, at once or after some seconds."""
        if after:
            asyncio.get_running_loop().call_later(after, self.done, key)
            return
        self.processing.discard(key)
        self.add(key)

    def due_in(self) -> float | None:
        """Return the seconds until the next key is due (0 for now), or None if there is none."""
        now = self._now()
        if self._keys or (self._heap and now < self._last_time):
            return 0.0
        return max(0.0, (self._heap[0][0] - now).total_seconds()) if self._heap else None

    async def added(self) -> None:
        """Wait until a key is added."""
        self._ready.clear()
        await self._ready.wait()


async def wait_for_keys(*queues: WorkQueue[Any], times: Times = Times()) -> None:
    """Wait until a key is due in any of these queues, which must share their `ready` event."""
    while True:
        waits = [due for due in (queue.due_in() for queue in queues) if due is not None]
        if waits and not min(waits):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(*waits, times.check_clock) if waits else None):
                await queues[0].added()


class WorkQueues:
    """One queue for each consumer. The operator's loop consumes the first four.

    Parameters
    ----------
    now
        The clock.
    namespace
        Returns the namespace of a job or claim, by its UID.
    """

    def __init__(
        self, now: Callable[[], datetime] = utc_now, namespace: Callable[[str], str] = lambda _: ""
    ) -> None:
        ready = asyncio.Event()
        self.jobs: WorkQueue[str] = WorkQueue(now, ready, namespace)
        """UIDs of jobs and claims to reconcile."""
        self.applications: WorkQueue[ApplicationKey] = WorkQueue(now, ready)
        """Applications whose profile has changed."""
        self.partitions: WorkQueue[str] = WorkQueue(now, ready)
        """Names of partitions that need a scheduling cycle."""
        self.capacities: WorkQueue[str] = WorkQueue(now, ready)
        """Names of partitions whose largest GPU or node may have changed."""
        self.gpu_servers: WorkQueue[str] = WorkQueue(now)
        """Names of partitions whose GPUServers must be reconciled."""
        self.devices: WorkQueue[str] = WorkQueue(now)
        """Names of partitions whose device classes or resource slices may have changed."""
        self.job_statuses: WorkQueue[str] = WorkQueue(now, namespace=namespace)
        """UIDs of jobs whose status may have changed."""
        self.claim_statuses: WorkQueue[str] = WorkQueue(now, namespace=namespace)
        """UIDs of claims whose reason for waiting may have changed."""
        self.partition_statuses: WorkQueue[str] = WorkQueue(now)
        """Names of partitions whose status may have changed."""

    def partition_changed(self, *names: str) -> None:
        """Request that everything that depends on partitions or their GPUs is done again."""
        self.partitions.add(*names)
        self.capacities.add(*names)
        self.devices.add(*names)
        self.allocations_changed(*names)

    def allocations_changed(self, *names: str) -> None:
        """Request GPUServer reconciliation and a status update, but no scheduling cycle."""
        self.gpu_servers.add(*names)
        self.partition_statuses.add(*names)

    def clear(self) -> None:
        """Remove all keys that are due; used if there is no consumer."""
        for queue in vars(self).values():
            queue.take()
