"""Who goes first in a partition, and how often a job may be passed over."""

from __future__ import annotations

from support.queues import LONG
from support.system import System


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
