"""A partition that is made larger or smaller, and a GPU that is drained."""

from __future__ import annotations

from support.crds import SERVER_NAMESPACE
from support.queues import LONG
from support.system import System


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
