"""Anything may be deleted or break at any time: jobs come through, or say why they cannot."""

from __future__ import annotations

from support.crds import SERVER_NAMESPACE
from support.history import GROUP_PATH
from support.job import Job
from support.queues import LONG
from support.system import System


async def running_job(system: System, partition: str, name: str = "train", **spec: object) -> Job:
    """Submit a job that must not fail even once, and wait until it runs."""
    options = {"gpuMemory": "4Gi", "retry": {"limit": 0}, "sim": LONG} | spec
    job = await system.job(name, partition, **options)
    await job.runs()
    return job


async def shorten(job: Job) -> None:
    """Let its next attempt end by itself."""
    template = job.body["spec"]["template"]
    template["metadata"]["annotations"]["sim.partita.dev/duration"] = "10s"
    (await job.change(template=template)).ok()


async def test_a_deleted_partition_s_jobs_finish_and_its_gpus_are_given_back(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await running_job(system, partition)
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


async def test_jobs_on_a_gpu_that_fails_are_queued_again_and_it_counts_as_no_failure(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        jobs = [await running_job(system, partition, f"train-{i}") for i in range(2)]
        for job in jobs:
            await shorten(job)
        annotation = {"metadata": {"annotations": {"sim.partita.dev/fault": "gpu-lost"}}}
        (await system.api.patch(f"{GROUP_PATH}/gpuservers/{partition}-0", annotation)).ok()
        for job in jobs:
            await job.succeeds()
            assert job.outcomes == ["GPUFault", "Succeeded"]
        status = await system.partition_says(partition, lambda s: s["gpus"] == 1)
        assert {c["type"]: c["status"] for c in status["conditions"]}["Degraded"] == "False"


async def test_a_namespace_deleted_with_jobs_running_gives_everything_back(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        namespace = await system.another_namespace()
        job = await running_job(system, partition, namespace=namespace, gpuMemory="30Gi")
        heir = await system.job("heir", partition, gpuMemory="30Gi")
        await heir.waits("InsufficientMemory")
        (await system.api.delete(f"/api/v1/namespaces/{namespace}")).ok()
        await heir.succeeds()
        await job.gone()
