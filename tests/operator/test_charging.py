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
