"""How much memory a job gets: what it asks for, what it needed before, and more after too little."""

from __future__ import annotations

from support.history import GROUP_PATH
from support.queues import LONG
from support.system import System


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
