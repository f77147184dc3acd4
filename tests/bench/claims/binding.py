"""How long it takes from the submission of a Pod or job until its Pod is bound to a node."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from bench.claims.plane import PlaneWithScheduler
from bench.claims.pods import Kubelet, claim_pod, fill_nodes, make_template
from bench.load.figures import Figure
from bench.load.stage import Stage, Tell, job_for, on_stage, partition_of
from bench.scale.partitions import jobs_path, make_partitions
from bench.scale.shape import JobClass

__all__ = ["binding"]

GPUS = 4
EVERY = 0.25
"""Seconds between two submissions; each of them finds room at once."""
RUNS_SECONDS = 2.0
MOST_RATIO = 2.0
"""Issue 17: the p99 of claims relative to that of jobs."""
SMALL = JobClass("job", units=1, seconds=3600, priority=0, count=0, every=0)
"""Its Pod is ended here, after it was bound; the simulated nodes would not wait for that."""


def binding(samples: int, tell: Tell) -> list[Figure]:
    """Submit jobs, gated Pods with claims, and others without a gate, one kind after the other."""

    async def play(stage: Stage) -> list[Figure]:
        await stage.start_operator()
        await fill_nodes(stage.api, GPUS)
        await make_partitions(stage.api, [partition_of("shared", gpus=GPUS)])
        kubelets = {kind: Kubelet(stage, kind) for kind in ("jobs", "gated", "ungated")}
        for kind, kubelet in kubelets.items():
            await make_template(stage.api, kind, "shared", "1Gi")
            stage.beside(kubelet.run())

        async def job(number: int) -> str:
            key = "jobs", f"job-{number}"
            await stage.api.post(jobs_path("jobs"), job_for("shared", key, SMALL))
            return f"job-{number}-1"

        def pod(namespace: str) -> Callable[[int], Awaitable[str]]:
            async def post(number: int) -> str:
                body = claim_pod(f"pod-{number}", gated=namespace == "gated")
                await stage.api.post(f"/api/v1/namespaces/{namespace}/pods", body)
                return f"pod-{number}"

            return post

        ways = {"jobs": job, "gated": pod("gated"), "ungated": pod("ungated")}
        waits = {
            kind: await seconds(stage, kubelets[kind], way, samples) for kind, way in ways.items()
        }
        return figures(waits)

    return on_stage(
        play,
        gpus=GPUS,
        namespaces=["jobs", "gated", "ungated"],
        tell=tell,
        plane_type=PlaneWithScheduler,
    )


async def seconds(
    stage: Stage, kubelet: Kubelet, post: Callable[[int], Awaitable[str]], samples: int
) -> list[float]:
    """Submit at a pace, run each Pod that is bound; return how long each took until it was bound."""
    waits: list[float] = []

    async def one(number: int) -> None:
        began = time.time()
        name = await post(number)
        await stage.until("Pods bound", lambda: int(name in kubelet.bound))
        waits.append(kubelet.bound[name] - began)
        await kubelet.start(name)
        await asyncio.sleep(RUNS_SECONDS)
        await kubelet.end(name)

    async with asyncio.TaskGroup() as group:
        for number in range(samples):
            group.create_task(one(number))
            await asyncio.sleep(EVERY)
    return waits


def figures(waits: dict[str, list[float]]) -> list[Figure]:
    """Return median and p99 of each kind, and how those of claims compare with those of jobs."""
    titles = {"jobs": "SharedGPUJob", "gated": "claim, gated", "ungated": "claim, not gated"}
    found, p99 = [], {}
    for kind, samples in waits.items():
        p99[kind] = statistics.quantiles(samples, n=100)[98]
        median = statistics.median(samples)
        found.append(Figure(f"{titles[kind]}: submitted to bound, median", 1000 * median, "ms"))
        found.append(Figure(f"{titles[kind]}: submitted to bound, p99", 1000 * p99[kind], "ms"))
    return found + [
        Figure(
            f"{titles[kind]}: p99 / p99 of SharedGPUJob", p99[kind] / p99["jobs"], "", MOST_RATIO
        )
        for kind in ("gated", "ungated")
    ]
