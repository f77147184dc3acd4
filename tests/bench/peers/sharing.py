"""Fractions of GPUs for thousands of Pods at once: how soon, at what cost, how well packed.

Each subject has a control plane of its own, which starts anew, the same nodes of eight GPUs, and
the same Pods in the same order, submitted as fast as the API server takes them. Each Pod that is
bound is started by its simulated kubelet. Where the Pods stand is read from what the subject wrote.

The peers are Kubernetes alone, with devices that several claims consume (DRAConsumableCapacity), and
HAMi and KAI if their programs are given: the Go module proxy, from which all others are built, has
neither's module. Volcano 1.14 with virtual GPUs was tried; it stopped at 67 of 80 Pods on 16 GPUs
for a reason that was not found, so it is not compared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NoReturn

from apiserver.build import assets
from bench.peers.batch import writes
from bench.peers.kubelet import PODS
from bench.peers.plane import RECOMMENDED, UNLIMITED, PeersPlane, Throttles
from bench.peers.report import Comparison, Run, Targets
from bench.peers.sharing_demand import Share, demand, fewest_gpus, packed
from bench.peers.sharing_hami import HamiPods
from bench.peers.sharing_kai import KaiFractions
from bench.peers.sharing_kubernetes import KubernetesClaims
from bench.peers.sharing_partita import PartitaClaims, PartitaJobs
from bench.peers.sharing_subject import NAMESPACE, Sharer
from bench.scale.client import Client, client
from bench.scale.meters import requests_served, usage
from bench.scale.nodes import GPUS_ON_NODE
from bench.scale.partitions import make_namespace

__all__ = ["sharing"]

Tell = Callable[[str], None]

SUBJECTS: tuple[Callable[[], Sharer], ...] = (
    partial(KubernetesClaims, packs=False),
    partial(KubernetesClaims, packs=True),
    PartitaClaims,
    PartitaJobs,
)
NOT_BOUND = "Pods not bound"
GPUS_USED = "GPUs used"
RELATIVE = "  relative to the peer with the fewest"
OVERFULL = "GPUs overfull"
TARGETS = Targets(wall=0.5, figures={NOT_BOUND: 0, RELATIVE: 1, OVERFULL: 0})
"""Issue 19."""
SUBMITTERS = 16
"""Requests under way at a time."""
IDLE_SECONDS = 120
"""Without any Pod being bound: then a run is over, and what is not bound counts as such."""
SETTLE_SECONDS = 3.0
"""After the last Pod, in which each subject ends its book-keeping; its processor time counts."""
TELL_SECONDS = 10
NODE = {"cpu": "256", "memory": "2Ti", "pods": "250"}
"""Twice what Pods ask for that fill its GPUs."""


def sharing(given: argparse.Namespace, tell: Tell) -> Iterator[Comparison]:
    """Compare placements of `given.pods` Pods on `given.gpus` GPUs, with throttles and without."""
    for throttles in (UNLIMITED, RECOMMENDED):
        title = f"{given.pods} Pods with fractions of {given.gpus} GPUs, {throttles.name}"
        if given.only not in title:
            continue
        subjects = [make() for make in SUBJECTS]
        if given.hami:
            subjects += [HamiPods(given.hami, packs=packs) for packs in (False, True)]
        if given.kai:
            subjects.append(KaiFractions(given.kai))
        runs = []
        for subject in subjects:
            tell(f"{title}: {subject.name}")
            runs.append(_measured(subject, throttles, given.pods, given.gpus, tell))
        peers = frozenset(subject.name for subject in subjects if subject.peer)
        yield Comparison(title, _compared(runs, peers), peers, targets=TARGETS)


def _compared(runs: list[Run], peers: frozenset[str]) -> list[Run]:
    """Add to each run of ours how many GPUs it used, relative to the peer that used the fewest."""
    complete = [run for run in runs if run.subject in peers and not run.figures[NOT_BOUND]]
    if not complete:
        return runs
    fewest = min(run.figures[GPUS_USED] for run in complete)
    return [
        run
        if run.subject in peers
        else replace(run, figures=run.figures | {RELATIVE: run.figures[GPUS_USED] / fewest})
        for run in runs
    ]


def _measured(subject: Sharer, throttles: Throttles, pods: int, gpus: int, tell: Tell) -> Run:
    """Run one subject once, from an empty etcd to its last Pod."""
    with ExitStack() as stack:
        plane = stack.enter_context(subject.plane(assets(), throttles))
        return asyncio.run(_run(subject, plane, throttles, pods, gpus, stack, tell))


class _Over(Exception):  # noqa: N818 - nothing is wrong
    """The run is over: what goes on beside it may end."""


async def _stop() -> NoReturn:
    raise _Over


async def _run(
    subject: Sharer,
    plane: PeersPlane,
    throttles: Throttles,
    pods: int,
    gpus: int,
    stack: ExitStack,
    tell: Tell,
) -> Run:
    asked = demand(pods)
    async with client(plane.url, plane.token, plane.certificate) as api:
        await make_namespace(api, NAMESPACE)
        pids = await subject.install(plane, api, throttles, stack)
        crowd = _Crowd(api, subject, tell)
        # How to end a TaskGroup: https://docs.python.org/3/library/asyncio-task.html
        try:
            async with asyncio.TaskGroup() as group:
                nodes = subject.nodes(api, gpus, group, crowd.see)
                await nodes.create()
                group.create_task(api.watch(PODS, nodes.see))
                await subject.prepare(api, await _fill(api, gpus))
                before = {name: usage(pid) for name, pid in pids.items()}
                own, own_requests = usage(os.getpid()), api.requests.copy()
                served = requests_served((await api.text("/metrics")).decode())
                wall = await crowd.submit(asked)
                await asyncio.sleep(SETTLE_SECONDS)
                used = {name: usage(pid).since(before[name]) for name, pid in pids.items()}
                own = usage(os.getpid()).since(own)
                after = requests_served((await api.text("/metrics")).decode())
                requests = Counter(after) - Counter(served) - (api.requests - own_requests)
                shares = await _written(subject, api, crowd)
                group.create_task(_stop())
        except* _Over:
            pass
    placed = packed(asked, shares)
    figures = {
        "submitted after, s": crowd.submitted,
        NOT_BOUND: len(asked) - len(crowd.bound),
        "GPUs of a perfect packing": fewest_gpus(asked),
        GPUS_USED: placed.gpus,
        OVERFULL: placed.overfull,
        "Pods with a wrong share, or none": placed.wrong,
        **writes(requests, len(crowd.bound)),
    }
    return Run(subject.name, len(crowd.bound), wall, used, own, figures)


async def _written(subject: Sharer, api: Client, crowd: _Crowd) -> dict[str, Share]:
    """Return the shares of the bound Pods as soon as the subject has written them all."""
    until = time.time() + IDLE_SECONDS
    while True:
        found = await subject.shares(api)
        shares = {name: found[name] for name in crowd.bound if name in found}
        if len(shares) == len(crowd.bound) or time.time() > until:
            return shares
        await asyncio.sleep(1)


async def _fill(api: Client, gpus: int) -> dict[str, int]:
    """Have the nodes offer CPU and memory; return how many GPUs each has."""
    first = range(0, gpus, GPUS_ON_NODE)
    nodes = {f"node-{n // GPUS_ON_NODE}": min(GPUS_ON_NODE, gpus - n) for n in first}
    for name in nodes:
        amounts = {"capacity": NODE, "allocatable": NODE}
        await api.patch(f"/api/v1/nodes/{name}/status", {"status": amounts})
    return nodes


class _Crowd:
    """The Pods of one run.

    Attributes
    ----------
    bound
        When each was seen to be bound, by the name that it was submitted under.
    submitted
        Seconds until the last was submitted.
    """

    def __init__(self, api: Client, subject: Sharer, tell: Tell) -> None:
        self._api = api
        self._subject = subject
        self._tell = tell
        self.bound: dict[str, float] = {}
        self.submitted = 0.0

    def see(self, _: str, pod: str) -> None:
        """Take a Pod that was bound. The Pod of a job has the job's name and a number."""
        self.bound.setdefault("-".join(pod.split("-")[:2]), time.time())

    async def submit(self, asked: dict[str, int]) -> float:
        """Submit all; return the seconds until all of them, or as many as can, were bound.

        Raises
        ------
        RuntimeError
            Not even one was bound.
        """
        began = time.time()
        waiting = iter(asked.items())

        async def submit() -> None:
            for name, percent in waiting:
                await self._api.post(*self._subject.submission(name, percent))
            self.submitted = time.time() - began

        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(submit())
            await self._all_bound(len(asked), began)
        if not self.bound:
            raise RuntimeError(f"{self._subject.name}: no Pod was bound")
        return max(self.bound.values()) - began

    async def _all_bound(self, wanted: int, began: float) -> None:
        told = moved = time.time()
        before = 0
        while (bound := len(self.bound)) < wanted:
            now = time.time()
            if bound > before:
                before, moved = bound, now
            how_far = f"{now - began:5.0f} s: {bound} of {wanted} Pods are bound"
            if now - moved > IDLE_SECONDS:
                self._tell(f"{how_far}, and no more for {IDLE_SECONDS} s")
                return
            if now - told >= TELL_SECONDS:
                told = now
                self._tell(how_far)
            await asyncio.sleep(0.05)
