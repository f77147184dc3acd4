"""Submits jobs to a subject, and sees when each is bound and when it has ended."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.peers.subject import Subject
from bench.scale.client import Client
from bench.scale.shape import CLASSES, JobClass

__all__ = ["Load", "Submission", "Timing", "burst", "paced"]

Json = dict[str, Any]

SUBMITTERS = 16
"""Requests under way at a time in a burst."""
IDLE_SECONDS = 120
"""Without any job ending: then a run is given up."""
TELL_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Submission:
    """One job.

    Attributes
    ----------
    due
        Seconds after the first one when it is submitted, if the API server keeps up.
    """

    namespace: str
    name: str
    kind: JobClass
    due: float


@dataclass(frozen=True, slots=True)
class Timing:
    """How long it took, in seconds."""

    wall: float
    submitting: float
    waits: list[float]
    """Of each job, from its submission until its Pod was bound."""

    def figures(self) -> dict[str, float]:
        """Return them for a report, without the wall time."""
        cuts = statistics.quantiles(self.waits, n=100)
        return {
            "the last submitted after, s": self.submitting,
            "submitted to bound, median, s": statistics.median(self.waits),
            "submitted to bound, p99, s": cuts[98],
        }


def paced(names: list[str], classes: tuple[JobClass, ...]) -> list[Submission]:
    """Return jobs at the pace of Kueue's benchmark, each class at its own, in each namespace."""
    submissions = [
        Submission(name, f"{kind.name}-{number}", kind, number * kind.every)
        for name in names
        for kind in classes
        for number in range(kind.count)
    ]
    return sorted(submissions, key=lambda one: one.due)


def burst(names: list[str], jobs: int, named: str = "job") -> list[Submission]:
    """Return so many jobs at once, evenly over the namespaces, in the benchmark's mix of classes."""
    rounds = -(-jobs // len(names))
    mix = _mixed(rounds)
    return [
        Submission(name, f"{named}-{number}", mix[number], 0.0)
        for number in range(rounds)
        for name in names
    ][:jobs]


def _mixed(number: int) -> list[JobClass]:
    """Return so many classes, each as often as in the benchmark, evenly mixed."""
    places = [((place + 0.5) / kind.count, kind) for kind in CLASSES for place in range(kind.count)]
    every = [kind for _, kind in sorted(places, key=lambda one: one[0])]
    return [every[place % len(every)] for place in range(number)]


class Load:
    """Jobs of one run.

    Parameters
    ----------
    tell
        Told how far it is.
    """

    def __init__(self, subject: Subject, api: Client, tell: Callable[[str], None]) -> None:
        self._subject = subject
        self._api = api
        self._tell = tell
        self._submitted: dict[tuple[str, str], float] = {}
        self._bound: dict[tuple[str, str], float] = {}
        self._ended: dict[tuple[str, str], float] = {}

    def bound(self, namespace: str, pod: str) -> None:
        """Take a Pod that was bound. Its name is that of its job, a hyphen, and something."""
        self._bound.setdefault((namespace, pod.rpartition("-")[0]), time.time())

    def see(self, _: str, job: Json) -> None:
        """Take a job as it is now.

        Raises
        ------
        RuntimeError
            It has failed.
        """
        key = job["metadata"]["namespace"], job["metadata"]["name"]
        if key in self._ended or (well := self._subject.ended(job)) is None:
            return
        if not well:
            raise RuntimeError(f"{self._subject.name}: {key} failed: {job['status']}")
        self._ended[key] = time.time()

    async def run(self, submissions: list[Submission]) -> Timing:
        """Submit jobs and wait until all have ended.

        Raises
        ------
        RuntimeError
            No job has ended for `IDLE_SECONDS`.
        """
        began = time.time()
        waiting = iter(submissions)

        async def submit() -> None:
            for one in waiting:
                await asyncio.sleep(max(0.0, began + one.due - time.time()))
                key = one.namespace, one.name
                body = self._subject.job(one.name, one.namespace, one.kind)
                self._submitted[key] = time.time()
                await self._api.post(self._subject.path(one.namespace), body)

        keys = {(one.namespace, one.name) for one in submissions}
        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(submit())
            await self._all_ended(keys, began)
        submitted = [self._submitted[key] for key in keys]
        return Timing(
            wall=max(self._ended[key] for key in keys) - began,
            submitting=max(submitted) - began,
            waits=[self._bound[key] - self._submitted[key] for key in keys],
        )

    async def _all_ended(self, keys: set[tuple[str, str]], began: float) -> None:
        told = moved = time.time()
        before = 0
        while (done := len(keys & self._ended.keys())) < len(keys):
            now = time.time()
            if done > before:
                before, moved = done, now
            how_far = f"{now - began:5.0f} s: {done} of {len(keys)} jobs have ended"
            if now - moved > IDLE_SECONDS:
                raise RuntimeError(f"{how_far}, and no more for {IDLE_SECONDS} s")
            if now - told >= TELL_SECONDS:
                told = now
                self._tell(how_far)
            await asyncio.sleep(0.1)
