"""Who goes first in a partition, and how often a job may be passed over."""

from __future__ import annotations

from support.operator import System
from support.queues import LONG


async def test_a_job_of_higher_priority_ends_lower_ones_where_the_partition_allows_it(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority", maxPriority=10)
        low = await system.job(
            "low", partition, gpuMemory="20Gi", priority=1, retry={"limit": 0}, sim=LONG
        )
        await low.runs()
        lowest = await system.job("lowest", partition, gpuMemory="10Gi", sim=LONG)
        await lowest.runs()
        high = await system.job("high", partition, gpuMemory="17Gi", priority=5, sim=LONG)
        await high.runs()
        assert lowest.outcomes == ["Preempted"]
        assert low.outcomes == [""]
        await lowest.waits("InsufficientMemory")
        await system.history.until(
            lambda: "Preempted" in [reason for reason, _ in system.history.events("lowest")]
        )
        await high.delete()
        await lowest.runs(attempt=2)


async def test_an_operator_that_takes_over_knows_who_was_passed_over(system: System) -> None:
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition(policy={"maxBypasses": 1})
            first = await system.job("first", partition, gpuMemory="10Gi", sim=LONG)
            await first.runs()
            big = await system.job("big", partition, gpuMemory="36Gi")
            await big.waits("InsufficientMemory")
            second = await system.job("second", partition, gpuMemory="10Gi", sim=LONG)
            await second.runs()
            third = await system.job("third", partition, gpuMemory="10Gi")
            await third.waits("GPUHeld")
            await big.until(lambda status: status.get("bypasses") == 1)
            await third.delete()
        async with system.operator(identity="another"):
            fourth = await system.job("fourth", partition, gpuMemory="10Gi")
            await fourth.waits("GPUHeld")
            await first.delete()
            await second.delete()
            await big.succeeds()
            await fourth.succeeds()
            await system.settle()
