"""A partition is deleted while its jobs run."""

from __future__ import annotations

from support.crds import SERVER_NAMESPACE
from support.history import GROUP_PATH
from support.queues import LONG
from support.system import System


async def test_a_deleted_partition_s_jobs_finish_and_its_gpus_are_given_back(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", retry={"limit": 0}, sim=LONG)
        await job.runs()
        (await system.api.delete(f"{GROUP_PATH}/gpupartitions/{partition}")).ok()
        await system.history.until(
            lambda: system.servers(partition)[0]["metadata"].get("deletionTimestamp")
        )
        queued = await system.job("queued", partition, gpuMemory="4Gi")
        await queued.waits("PartitionNotFound", partition)
        assert job.outcomes == [""]
        assert job.status["phase"] == "Running"
        await job.delete()
        await system.history.until(
            lambda: (
                not system.servers(partition) and not system.history.all("pods", SERVER_NAMESPACE)
            )
        )
