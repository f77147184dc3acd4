"""Submits work to a subject, and sees when each is bound and when it has ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from bench.client import Client, Json
from bench.harness import quantile, tell
from bench.shape import CLASSES, JobClass
from bench.subject import Subject

__all__ = ["Load", "Work", "burst", "paced"]

Key = tuple[str, str]

SUBMITTERS = 16
"""Requests under way at a time."""
IDLE_SECONDS = 120
"""Without anything being done: then a run is given up."""
TELL_SECONDS = 15


class Work(NamedTuple):
    """One job or Pod."""

    namespace: str
    name: str
    size: Any
    """A `JobClass`, or percent of a GPU."""
    due: float = 0.0
    """Seconds after the first one when it is submitted, if the API server keeps up."""


def paced(namespaces: list[str], classes: tuple[JobClass, ...]) -> list[Work]:
    """Return jobs at the pace of Kueue's benchmark, each class at its own, in each namespace."""
    works = [
        Work(namespace, f"{kind.name}-{number}", kind, number * kind.every)
        for namespace in namespaces
        for kind in classes
        for number in range(kind.count)
    ]
    return sorted(works, key=lambda one: one.due)


def burst(namespaces: list[str], jobs: int, named: str = "job") -> list[Work]:
    """Return so many jobs at once, evenly over the namespaces, in the benchmark's mix of classes."""
    places = [((place + 0.5) / kind.count, kind) for kind in CLASSES for place in range(kind.count)]
    mix = [kind for _, kind in sorted(places, key=lambda one: one[0])]
    return [
        Work(namespace, f"{named}-{number}", mix[number % len(mix)])
        for number in range(-(-jobs // len(namespaces)))
        for namespace in namespaces
    ][:jobs]


class Load:
    """The work of one run.

    Attributes
    ----------
    submitted, bound, ended
        When each was, by namespace and name.
    """

    def __init__(self, subject: Subject, api: Client) -> None:
        self._subject = subject
        self._api = api
        self.submitted: dict[Key, float] = {}
        self.bound: dict[Key, float] = {}
        self.ended: dict[Key, float] = {}

    def see_bound(self, namespace: str, pod: str) -> None:
        """Take a Pod that was bound. Its name is that of the work, perhaps with more behind it."""
        key = namespace, pod
        if key not in self.submitted:
            key = namespace, pod.rpartition("-")[0]
        self.bound.setdefault(key, time.time())

    def see(self, _: str, body: Json) -> None:
        """Take a job as it is now.

        Raises
        ------
        RuntimeError
            It has failed.
        """
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if key in self.ended or (well := self._subject.ended(body)) is None:
            return
        if not well:
            raise RuntimeError(f"{self._subject.name}: {key} went wrong: {body['status']}")
        self.ended[key] = time.time()
        if key not in self.bound:
            self.bound[key] = self._subject.admitted(body)

    async def run(self, works: list[Work]) -> float:
        """Submit all, and wait until all are done or, if they end by no job, nothing moves.

        Returns
        -------
        float
            Seconds from the first submission until the last was done.

        Raises
        ------
        RuntimeError
            No job has ended for `IDLE_SECONDS`, or no Pod was bound.
        """
        began = time.time()
        waiting = iter(works)

        async def submit() -> None:
            for one in waiting:
                await asyncio.sleep(max(0.0, began + one.due - time.time()))
                self.submitted[one.namespace, one.name] = time.time()
                await self._api.post(*self._subject.request(one))

        done = self.ended if self._subject.watched else self.bound
        keys = {(one.namespace, one.name) for one in works}
        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(submit())
            await self._until_done(keys, done, began)
        times = [done[key] for key in keys if key in done]
        if not times:
            raise RuntimeError(f"{self._subject.name}: no Pod was bound")
        return max(times) - began

    async def _until_done(self, keys: set[Key], done: dict[Key, float], began: float) -> None:
        told = moved = time.time()
        before = 0
        while (count := len(keys & done.keys())) < len(keys):
            now = time.time()
            if count > before:
                before, moved = count, now
            how_far = f"{now - began:5.0f} s: {count} of {len(keys)} are done"
            if now - moved > IDLE_SECONDS:
                if self._subject.watched:
                    raise RuntimeError(f"{how_far}, and no more for {IDLE_SECONDS} s")
                tell(f"{how_far}, and no more for {IDLE_SECONDS} s")
                return
            if now - told >= TELL_SECONDS:
                told = now
                tell(how_far)
            await asyncio.sleep(0.05)

    def figures(self, works: list[Work]) -> dict[str, float]:
        """Return when the last was submitted, and how long they waited, by class if they have any."""
        first = min(self.submitted[one.namespace, one.name] for one in works)
        last = max(self.submitted[one.namespace, one.name] for one in works)
        waits: dict[str, list[float]] = {}
        for one in works:
            key = one.namespace, one.name
            if key in self.bound:
                wait = self.bound[key] - self.submitted[key]
                waits.setdefault("", []).append(wait)
                if isinstance(one.size, JobClass):
                    waits.setdefault(f", {one.size.name}", []).append(wait)
        found = {"the last submitted after, s": last - first}
        for kind, times in waits.items():
            found[f"submitted to bound{kind}: median, s"] = quantile(times, 0.5)
            found[f"submitted to bound{kind}: p99, s"] = quantile(times, 0.99)
        return found
