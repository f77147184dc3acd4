"""Runs subjects one after the other with equal work, and measures what each took.

Each run has a control plane of its own, which starts anew, and the same simulated nodes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NoReturn

from bench.client import Client, client
from bench.harness import requests_served, tell, usage
from bench.load import Load, Work
from bench.report import Comparison, Run, Targets
from bench.stage import Plane, Throttles, make_namespace
from bench.subject import Subject

__all__ = ["Contest", "compared", "measured"]

SETTLE_SECONDS = 3.0
"""After the last job, in which each subject ends its book-keeping; its processor time counts."""
_WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}


@dataclass(frozen=True, slots=True)
class Contest:
    """Equal work for some subjects.

    Attributes
    ----------
    warm
        Done by each before it is measured.
    """

    title: str
    subjects: Sequence[Subject]
    throttles: Throttles
    works: list[Work]
    gpus: int
    targets: Targets
    warm: list[Work]


def compared(contest: Contest) -> Comparison:
    """Run all subjects of a contest, one after the other."""
    runs = []
    for subject in contest.subjects:
        tell(f"{contest.title}: {subject.name}")
        runs.append(measured(subject, contest))
    peers = frozenset(subject.name for subject in contest.subjects if subject.peer)
    return Comparison(contest.title, runs, peers, contest.targets)


def measured(subject: Subject, contest: Contest) -> Run:
    """Run one subject once, from an empty etcd to its last job."""
    with ExitStack() as stack:
        plane = stack.enter_context(subject.plane(contest.throttles))
        return asyncio.run(_run(subject, plane, contest, stack))


class _Over(Exception):  # noqa: N818 - nothing is wrong
    """The run is over: what goes on beside it may end."""


async def _stop() -> NoReturn:
    raise _Over


async def _run(subject: Subject, plane: Plane, contest: Contest, stack: ExitStack) -> Run:
    works, namespaces = contest.works, sorted({one.namespace for one in contest.works})
    async with client(plane.url, plane.token, plane.certificate) as api:
        own = await subject.install(plane, api, stack)  # in this thread: it ends with its starter
        meters = _Meters(api, {**own, **plane.process_ids()})
        load = Load(subject, api)
        # How to end a TaskGroup: https://docs.python.org/3/library/asyncio-task.html
        try:
            async with asyncio.TaskGroup() as group:
                nodes = subject.nodes(api, contest.gpus, group, load.see_bound)
                await nodes.create()
                group.create_task(api.watch("/api/v1/pods", nodes.see))
                if subject.watched:
                    group.create_task(api.watch(subject.watched, load.see))
                for name in namespaces:
                    await make_namespace(api, name)
                await subject.prepare(api, namespaces, nodes.gpus_of)
                if contest.warm:
                    await load.run(contest.warm)
                await meters.start()
                wall = await load.run(works)
                await asyncio.sleep(SETTLE_SECONDS)
                done = [one for one in works if (one.namespace, one.name) in load.bound]
                figures = load.figures(works) | await meters.stop(len(done))
                figures |= await subject.figures(api, {one.name for one in done})
                group.create_task(_stop())
        except* _Over:
            pass
    return Run(subject.name, len(done), wall, meters.used, meters.own, figures)


class _Meters:
    """What processes use, and what the API server is asked, between two moments.

    Attributes
    ----------
    used, own
        Of each process, and of this one, when it has been stopped.
    """

    def __init__(self, api: Client, pids: dict[str, int]) -> None:
        self._api = api
        self._pids = pids

    async def start(self) -> None:
        self.used = {name: usage(pid) for name, pid in self._pids.items()}
        self.own = usage(os.getpid())
        self._own_requests = self._api.requests.copy()
        self._served = await self._requests()

    async def stop(self, done: int) -> dict[str, float]:
        """Return how often all but this process wrote, for each job or Pod."""
        now = {name: usage(pid) for name, pid in self._pids.items()}
        self.used = {name: now[name].since(self.used[name]) for name in now}
        self.own = usage(os.getpid()).since(self.own)
        own = self._api.requests - self._own_requests
        return dict(_writes(await self._requests() - self._served - own, done))

    async def _requests(self) -> Counter[tuple[str, str]]:
        return Counter(requests_served((await self._api.text("/metrics")).decode()))


def _writes(requests: Counter[tuple[str, str]], done: int) -> Iterator[tuple[str, float]]:
    by_resource: Counter[str] = Counter()
    for (verb, resource), number in requests.items():
        if verb in _WRITES:
            by_resource[resource] += number
    yield "API writes each", sum(by_resource.values()) / done
    for name, number in by_resource.most_common():
        if number / done >= 0.05:
            yield f"  {name}", number / done
