"""Carries a plan out, round by round, and judges each round."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

from chaos.chaos_cluster import ChaosCluster
from chaos.operators import LEASE_SECONDS
from chaos.plan import PARTITIONS, JobPlan, Round, Step
from chaos.verdict import lease_views, servers_left_over, written_without_lease, wrong_ends
from chaos.workloads import WORKLOADS, delete_workloads, wrong_workloads
from support.history import GROUP_PATH, History

__all__ = ["FailedRoundError", "run_round", "take_down"]

CALM_SECONDS = 120.0
"""Within which everything must be at its right end once nothing goes wrong any more. A back-off
after failures is at most some seconds here; a node that was gone is found so in 15 s."""


class FailedRoundError(Exception):
    """Something was that must not be.

    Attributes
    ----------
    problems
        What it was.
    """

    def __init__(self, number: int, problems: list[str]) -> None:
        super().__init__(f"round {number}: {len(problems)} problems")
        self.number = number
        self.problems = problems


async def run_round(cluster: ChaosCluster, planned: Round, say: Callable[[str], None]) -> None:
    """Carry out one round, let all come to rest, and judge it.

    Raises
    ------
    FailedRoundError
        Something is wrong; nothing is cleaned up then.
    """
    jobs = list(planned.jobs)
    began = time.monotonic()
    try:
        async with asyncio.TaskGroup() as group:
            for step in planned.steps:
                await asyncio.sleep(step.pause)
                for job in step.jobs:
                    group.create_task(_live(cluster, job))
                group.create_task(_strike(cluster, step, began))
        await cluster.faults.mend()
    except ExceptionGroup as errors:
        raise FailedRoundError(planned.number, [*_flat(errors), *_judge(cluster)]) from errors
    rough = time.monotonic() - began
    stuck = await _rest(cluster, jobs)
    problems = [*stuck, *_judge(cluster)]
    if problems:
        raise FailedRoundError(planned.number, problems)
    calm = time.monotonic() - began - rough
    say(
        f"round {planned.number}: {len(jobs)} jobs, {len(planned.steps)} kills and faults in "
        f"{rough:.0f} s, at rest after {calm:.0f} s"
    )
    await _clear(cluster, planned.number, jobs)


async def _strike(cluster: ChaosCluster, step: Step, began: float) -> None:
    at = time.monotonic() - began
    await cluster.faults.strike(step.action)
    took = time.monotonic() - began - at
    with (cluster.folder / "actions.jsonl").open("a") as log:
        entry = {"at": round(at, 3), "took": round(took, 3), "step": step.number}
        log.write(json.dumps(entry | asdict(step.action)) + "\n")


async def _live(cluster: ChaosCluster, job: JobPlan) -> None:
    """Submit a job, and do to it what its kind asks for."""
    await cluster.submit(job)
    if job.kind == "deleted":
        await asyncio.sleep(job.after)
        await cluster.delete(job)
    elif job.kind == "suspended":
        await asyncio.sleep(job.after)
        await cluster.change(job, suspend=True)
        await asyncio.sleep(1)
        await cluster.change(job, suspend=False)


async def _rest(cluster: ChaosCluster, jobs: list[JobPlan]) -> list[str]:
    """Wait until everything is at its right end; return what is not in time."""
    history = cluster.history

    def wrong() -> list[str]:
        return [
            *wrong_ends(history, jobs),
            *history.left_over(workloads=True),
            *wrong_workloads(history, WORKLOADS),
        ]

    return await _calm(history, wrong)


async def _calm(history: History, wrong: Callable[[], list[str]]) -> list[str]:
    """Wait until nothing is wrong; return what still is after `CALM_SECONDS`."""
    try:
        await history.until(lambda: not wrong(), seconds=CALM_SECONDS)
    except AssertionError:
        return wrong()
    return []


def _judge(cluster: ChaosCluster) -> list[str]:
    views = lease_views(cluster.history.lives("leases"))
    return [
        *cluster.history.problems(),
        *written_without_lease(views, cluster.operators.writes(), LEASE_SECONDS),
        *cluster.operators.odd,
    ]


def _left(cluster: ChaosCluster) -> list[str]:
    """Name what is left of jobs that were deleted: themselves, their Pods, their allocations."""
    history = cluster.history
    jobs = [body["metadata"]["name"] for body in history.all("sharedgpujobs")]
    pods = [body["metadata"]["name"] for body in history.job_pods_now()]
    allocated = history.left_over(workloads=True)
    return [*allocated, *(f"{name} is left" for name in (*jobs, *pods))]


async def _clear(cluster: ChaosCluster, number: int, jobs: list[JobPlan]) -> None:
    """Delete the round's jobs; nothing of them may stay."""
    for job in jobs:
        await cluster.delete(job)
    if left := await _calm(cluster.history, lambda: _left(cluster)):
        raise FailedRoundError(number, left)
    cluster.history.forget_gone()
    cluster.operators.forget_writes()


async def take_down(cluster: ChaosCluster) -> list[str]:
    """Delete the workloads, then the partitions; return what is left of them."""
    history = cluster.history

    def workloads() -> list[str]:
        # One whose owner somebody has taken off stays, as Kubernetes has it.
        metas = [claim["metadata"] for claim in history.all("resourceclaims")]
        claims = [meta["name"] for meta in metas if meta.get("ownerReferences")]
        return [*wrong_workloads(history, {}), *(f"claim {name} is left" for name in claims)]

    await delete_workloads(cluster.api)
    if left := await _calm(history, workloads):
        return left
    for name in PARTITIONS:
        await cluster.api.delete(f"{GROUP_PATH}/gpupartitions/{name}")
    return await _calm(history, lambda: servers_left_over(history))


def _flat(errors: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield f"{type(error).__name__}: {error}"
