"""How much memory a job gets: what it asks for, what it needed before, and more after too little."""

from __future__ import annotations

from support.history import GROUP_PATH
from support.operator import System
from support.queues import LONG


async def test_only_the_job_that_ran_out_of_memory_ends_and_comes_back_larger(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        neighbours = [
            await system.job(f"neighbour-{i}", partition, gpuMemory="8Gi", sim=LONG)
            for i in range(2)
        ]
        for neighbour in neighbours:
            await neighbour.runs()
        job = await system.job(
            "hungry",
            partition,
            gpuMemory="4Gi",
            retry={"limit": 0, "outOfMemory": {"limit": 3, "growthPercent": 50}},
            sim={"memory": "2Gi,7Gi"},
        )
        status = await job.succeeds()
        assert job.outcomes == ["OutOfMemory", "OutOfMemory", "Succeeded"]
        assert job.memories == ["4Gi", "6Gi", "9Gi"]
        assert "out of memory" in status["attempts"][0]["message"]
        assert job.env(2)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6144M"
        for neighbour in neighbours:
            assert neighbour.outcomes == [""]
            assert neighbour.status["phase"] == "Running"


async def profile(system: System, application: str, *memory: str) -> None:
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "ApplicationProfile",
        "metadata": {"name": application},
        "spec": {
            "application": application,
            "measurements": [
                {
                    "duration": "60s",
                    "environment": {"product": "NVIDIA A100-SXM4-40GB"},
                    "steps": [{"gpuMemory": amount, "gpuUtilization": 50} for amount in memory],
                }
            ],
        },
    }
    path = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"
    (await system.api.post(path, body)).ok()


async def test_a_job_without_memory_takes_it_from_its_application_s_history(
    system: System,
) -> None:
    await profile(system, "resnet", "2Gi", "10Gi")
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, application="resnet")
        await job.succeeds()
        assert job.memories == ["11Gi"]  # a tenth more than the peak


async def test_a_job_without_memory_or_history_runs_alone(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        new = await system.job("new", partition, application="unheard-of", sim=LONG)
        await new.runs()
        small = await system.job("small", partition, gpuMemory="1Gi")
        await small.waits("GPUNotIdle", "a job that must be alone")
        second = await system.job("second", partition, application="unheard-of")
        await second.waits("GPUNotIdle", "an idle GPU")
        (server,) = system.servers(partition)
        assert server["status"]["allocations"][new.uid]["alone"]
        await new.delete()
        await small.succeeds()
        await second.succeeds()


async def test_a_job_that_learns_its_memory_while_it_waits_no_longer_wants_to_be_alone(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        blocker = await system.job("blocker", partition, gpuMemory="4Gi", sim=LONG)
        await blocker.runs()
        job = await system.job("train", partition, application="resnet")
        await job.waits("GPUNotIdle")
        await profile(system, "resnet", "2Gi")
        await job.succeeds()
        assert blocker.outcomes == [""]
