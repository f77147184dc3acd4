"""Failures are charged to their cause."""

from __future__ import annotations

from support.history import GROUP_PATH
from support.operator import System
from support.queues import LONG


async def fault(system: System, partition: str) -> None:
    """Have the partition's GPU suffer a fault that a program can cause."""
    annotation = {"metadata": {"annotations": {"sim.partita.dev/fault": "mps"}}}
    (await system.api.patch(f"{GROUP_PATH}/gpuservers/{partition}-0", annotation)).ok()


async def test_a_program_that_faults_its_gpu_is_isolated_and_then_charged(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        bad = await system.job("bad", partition, gpuMemory="4Gi", retry={"limit": 0}, sim=LONG)
        await bad.runs()
        victim = await system.job(
            "victim", partition, gpuMemory="4Gi", retry={"limit": 0}, sim=LONG
        )
        await victim.runs()
        for attempt in (1, 2):
            await fault(system, partition)
            if attempt == 1:
                await bad.runs(2)
                await victim.runs(2)
        await bad.runs(3)
        (server,) = system.servers(partition)
        assert server["status"]["allocations"][bad.uid]["alone"]
        assert bad.memories == ["4Gi", "4Gi", "4Gi"]
        said = await victim.waits("GPUNotIdle", "because its GPU faulted too often")
        assert said
        assert [a["faultSuspect"] for a in victim.status["attempts"]] == [True, True]
        await fault(system, partition)
        status = await bad.fails()
        assert bad.outcomes == ["GPUFault", "GPUFault", "Failed"]
        assert "faulted while the job was alone on it" in status["message"]
        await victim.runs(3)
        assert victim.outcomes == ["GPUFault", "GPUFault", ""]


async def test_jobs_whose_gpu_faulted_keep_their_place_in_the_queue(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        first = await system.job("first", partition, gpuMemory="30Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="30Gi", sim=LONG)
        await second.waits("InsufficientMemory")
        assert second.status["queuePosition"] == 1
        await fault(system, partition)
        await first.runs(2)
        assert second.outcomes == []
        assert first.outcomes == ["GPUFault", ""]


async def test_memory_refused_far_below_the_allocation_is_not_the_jobs_failure(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job(
            "small",
            partition,
            gpuMemory="8Gi",
            retry={"limit": 0, "outOfMemory": {"limit": 0}},
            sim={
                "memory": "2Gi",
                "duration": "60s",
                "exit_code": "1",
                "message": "RuntimeError: CUDA error: out of memory",
            },
        )
        status = await job.until(lambda s: (s.get("attempts") or [{}])[0].get("outcome"))
        assert job.outcomes[0] == "SystemFailure"
        assert "with 2.0 GiB in use of 8.0 GiB allocated" in status["attempts"][0]["message"]
        status = await job.fails()
        assert job.outcomes == ["SystemFailure"] * 3 + ["Failed"]
        assert job.memories == ["8Gi"] * 4


async def test_what_becomes_of_unknown_processes_reaches_gpus_that_serve(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        (server,) = await system.ready(partition)
        assert server["spec"]["unknownProcesses"] == "Report"
        uid = server["metadata"]["uid"]
        sharing = {"unknownProcesses": "Terminate"}
        await system.change_partition(partition, sharing=sharing)
        await system.history.until(
            lambda: system.servers(partition)[0]["spec"]["unknownProcesses"] == "Terminate"
        )
        assert system.servers(partition)[0]["metadata"]["uid"] == uid
