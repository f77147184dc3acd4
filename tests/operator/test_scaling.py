"""A partition that is made larger or smaller, and a GPU that is drained."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from partita.models.quantities import format_time
from support.operator import SERVER_NAMESPACE, System, gpu_states
from support.queues import LONG, blocked


async def test_a_waiting_job_starts_on_a_gpu_that_is_added(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=1)
        _, job = await blocked(system, partition, "train", gpuMemory="30Gi")
        await job.waits("InsufficientMemory")
        await system.scale(partition, 2)
        await job.succeeds()
        status = await system.partition_says(partition, lambda s: s["gpus"] == 2)
        assert status["capacity"]["gpus"] == 2


async def test_a_gpu_given_back_finishes_its_jobs_and_takes_no_more(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="30Gi", sim=LONG) for i in range(2)
        ]
        for job in jobs:
            await job.runs()
        (lasts,) = [j for j in jobs if j.status["assignment"]["servers"] == [f"{partition}-0"]]
        (drains,) = [job for job in jobs if job is not lasts]
        await system.scale(partition, 1)
        await system.history.until(
            lambda: system.servers(partition)[1]["metadata"].get("deletionTimestamp")
        )
        queued = await system.job("queued", partition, gpuMemory="5Gi")
        await queued.succeeds()
        assert queued.status["attempts"][0]["servers"] == [f"{partition}-0"]
        assert drains.outcomes == [""]
        await drains.delete()
        await system.history.until(lambda: len(system.servers(partition)) == 1)
        await system.history.until(
            lambda: (
                [p["metadata"]["name"] for p in system.history.all("pods", SERVER_NAMESPACE)]
                == [f"{partition}-0"]
            )
        )
        assert lasts.outcomes == [""]


async def test_a_drained_gpu_lets_its_jobs_end_and_takes_no_more_until_it_is_told_to(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(drainTimeout="1s")
        await system.ready(partition)
        job = await system.job("train", partition, gpuMemory="30Gi", sim=LONG)
        await job.runs()
        server = f"/apis/partita.dev/v1alpha1/gpuservers/{partition}-0"
        since = format_time(datetime.now(UTC))
        (await system.api.patch(server, {"spec": {"drainSince": since}})).ok()
        await job.until(lambda s: s["attempts"][0].get("outcome") == "Evicted")
        await system.partition_says(partition, lambda s: set(gpu_states(s).values()) == {"Drained"})
        assert await job.waits("NoGPUReady")
        (await system.api.patch(server, {"spec": {"drainSince": None}})).ok()
        await job.runs(attempt=2)


async def test_scaling_down_and_up_again_at_once_ends_with_what_was_asked_last(
    system: System,
) -> None:
    async with system.running(3):
        partition = await system.partition(gpus=3)
        await system.ready(partition, 3)
        for gpus in (0, 2, 1, 3):
            await system.scale(partition, gpus)
            await asyncio.sleep(0)
        await system.ready(partition, 3)
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()
