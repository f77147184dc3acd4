"""Jobs in Kueue's queues and in Partita's partitions: equal work, one subject after another.

Each job is one Pod of the same size, priority and duration, in the queue or partition of its
namespace. A subject has a control plane of its own, which starts anew, and runs a few jobs before
it is measured. The order of the subjects is reversed from one comparison to the next; a burst
has the first subject once more at its end, which shows how much the machine changed meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from apiserver.build import assets
from bench.claims.pods import fill_nodes
from bench.peers.kubelet import PODS, BoundNodes
from bench.peers.kueue_jobs import KueueJobs
from bench.peers.load import Load, Submission, burst, paced
from bench.peers.partita_jobs import ClaimJobs, SharedJobs
from bench.peers.plane import RECOMMENDED, UNLIMITED, PeersPlane, Throttles
from bench.peers.report import Comparison, Run, Targets
from bench.peers.subject import Subject
from bench.scale.client import client
from bench.scale.meters import requests_served, usage
from bench.scale.partitions import make_namespace
from bench.scale.shape import PARTITIONS, least_seconds, shrunk

__all__ = ["batch", "writes"]

TARGETS = Targets(wall=0.5, cpu=0.5, memory={"operator": 250})
"""Issue 19."""
SETTLE_SECONDS = 3.0
"""After the last job, in which each subject ends its book-keeping; its processor time counts."""
SUBJECTS: tuple[Callable[[Throttles], Subject], ...] = (
    KueueJobs,
    lambda _: SharedJobs(),
    lambda _: ClaimJobs(),
)


def batch(given: argparse.Namespace, tell: Callable[[str], None]) -> Iterator[Comparison]:
    """Compare bursts and the shape of Kueue's benchmark, with throttles and without."""
    names = [f"partition-{number}" for number in range(PARTITIONS)]
    classes = shrunk(given.share)
    at_once = burst(names, given.jobs)
    at_pace = paced(names, classes)
    order = SUBJECTS
    for shape, submissions, least, repeats in (
        (f"a burst of {given.jobs} jobs", at_once, 0.0, 1),
        (
            f"{len(at_pace)} jobs at the pace of Kueue's benchmark",
            at_pace,
            least_seconds(classes),
            0,
        ),
    ):
        for throttles in (RECOMMENDED, UNLIMITED):
            title = f"{shape}, {throttles.name}"
            if given.only not in title:
                continue
            runs = []
            for make in (*order, *order[:repeats]):
                subject = make(throttles)
                tell(f"{title}: {subject.name}")
                runs.append(_measured(subject, throttles, names, submissions, tell))
            yield Comparison(title, runs, frozenset({KueueJobs.name}), least, TARGETS)
            order = order[::-1]


def _measured(
    subject: Subject,
    throttles: Throttles,
    names: list[str],
    submissions: list[Submission],
    tell: Callable[[str], None],
) -> Run:
    """Run one subject once, from an empty etcd to its last job."""
    with ExitStack() as stack:
        plane = stack.enter_context(PeersPlane(assets(), throttles))
        return asyncio.run(_run(subject, plane, names, submissions, stack, tell))


async def _run(
    subject: Subject,
    plane: PeersPlane,
    names: list[str],
    submissions: list[Submission],
    stack: ExitStack,
    tell: Callable[[str], None],
) -> Run:
    async with client(plane.url, plane.token, plane.certificate) as api:
        pids = {subject.component: await subject.install(plane, api, stack), **plane.process_ids()}
        load = Load(subject, api, tell)
        async with asyncio.TaskGroup() as group:
            nodes = BoundNodes(api, PARTITIONS, group, load.bound)
            await nodes.create()
            await fill_nodes(api, PARTITIONS)
            watches = [
                group.create_task(api.watch(PODS, nodes.see)),
                group.create_task(api.watch(subject.path(), load.see)),
            ]
            for name in names:
                await make_namespace(api, name)
            await subject.prepare(api, names)
            await load.run(burst(names, len(names), named="warm"))
            before = {name: usage(pid) for name, pid in pids.items()}
            own_before, own_requests = usage(os.getpid()), api.requests.copy()
            served = requests_served((await api.text("/metrics")).decode())
            timing = await load.run(submissions)
            await asyncio.sleep(SETTLE_SECONDS)
            used = {name: usage(pid).since(before[name]) for name, pid in pids.items()}
            own = usage(os.getpid()).since(own_before)
            after = requests_served((await api.text("/metrics")).decode())
            for watch in watches:
                watch.cancel()
        requests = Counter(after) - Counter(served) - (api.requests - own_requests)
        return Run(
            subject.name,
            len(submissions),
            timing.wall,
            used,
            own,
            {**timing.figures(), **writes(requests, len(submissions))},
        )


def writes(requests: Counter[tuple[str, str]], jobs: int) -> dict[str, float]:
    """Return how often all but the benchmark wrote, for each job or Pod."""
    by_resource: Counter[str] = Counter()
    for (verb, resource), number in requests.items():
        if verb in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
            by_resource[resource] += number
    frequent = {name: n / jobs for name, n in by_resource.most_common() if n / jobs >= 0.05}
    total = sum(by_resource.values()) / jobs
    return {"API writes each": total} | {f"  {name}": n for name, n in frequent.items()}
