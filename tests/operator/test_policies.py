"""The policy of a partition is changed while it decides."""

from __future__ import annotations

from support.queues import LONG
from support.system import System


async def test_a_policy_changed_in_yaml_decides_the_next_cycle_without_a_restart(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        blocker = await system.job("blocker", partition, gpuMemory="30Gi", sim=LONG)
        await blocker.runs()
        jobs = [
            await system.job(f"for-{length}", partition, gpuMemory="30Gi", expectedDuration=length)
            for length in ("20m", "5m", "10m")
        ]
        for job in jobs:
            await job.until(lambda s: s.get("queuePosition"))
        await system.change_partition(partition, policy={"name": "sjf"})
        await system.partition_says(partition, lambda s: s["policy"]["active"] == "sjf")
        await blocker.delete()
        for job in jobs:
            await job.succeeds()
        assert system.started() == ["blocker", "for-5m", "for-10m", "for-20m"]
