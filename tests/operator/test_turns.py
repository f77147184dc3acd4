"""Who goes first in a partition, and how often a job may be passed over."""

from __future__ import annotations

from partita.pods.termination import ADDED_GRACE
from support.operator import System
from support.queues import LONG, blocked

A100, H200 = "NVIDIA A100-SXM4-40GB", "NVIDIA H200"


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


async def test_a_victim_cannot_delay_preemption_by_its_grace_period(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(
            preemption="LowerPriority", maxPriority=10, preemptionGracePeriod="5s"
        )
        slow = {"terminationGracePeriodSeconds": 86400}
        victim = await system.job("victim", partition, gpuMemory="30Gi", pod=slow, sim=LONG)
        await victim.runs()
        high = await system.job("high", partition, gpuMemory="30Gi", priority=5, sim=LONG)
        await high.runs()
        assert victim.outcomes == ["Preempted"]
        versions = system.history.versions("pods", "victim-1", system.namespace)
        given = [pod["metadata"].get("deletionGracePeriodSeconds") for pod in versions]
        assert next(seconds for seconds in given if seconds is not None) == 5 + ADDED_GRACE


async def test_several_jobs_are_preempted_for_several_at_the_same_time(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority", maxPriority=10)
        low = [await system.job(f"low-{i}", partition, gpuMemory="9Gi", sim=LONG) for i in range(4)]
        for job in low:
            await job.runs()
        large = await system.job("large", partition, gpuMemory="18Gi", priority=5, sim=LONG)
        small = await system.job("small", partition, gpuMemory="9Gi", priority=5, sim=LONG)
        await large.runs()
        await small.runs()
        ended = [outcome for job in low for outcome in job.outcomes]
        assert ended.count("Preempted") == 3


async def test_jobs_of_the_same_priority_end_nobody(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority")
        _, job = await blocked(system, partition, "train", gpuMemory="4Gi")
        await job.waits("InsufficientMemory")


async def test_nobody_is_ended_where_the_partition_does_not_allow_it(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(maxPriority=10)
        blocker, job = await blocked(system, partition, "train", gpuMemory="4Gi", priority=9)
        await job.waits("InsufficientMemory")
        assert blocker.outcomes == [""]


async def test_a_job_is_passed_over_only_so_often_whatever_the_policy_prefers(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(
            policy={"name": "sjf", "parameters": {"exclusive": False}, "maxBypasses": 2}
        )
        (blocker,) = await blocked(system, partition)
        big = await system.job("big", partition, gpuMemory="30Gi", expectedDuration="5h")
        await big.waits("InsufficientMemory")
        small = [
            await system.job(f"small-{i}", partition, gpuMemory="30Gi", expectedDuration="1s")
            for i in range(6)
        ]
        for job in small:
            await job.waits("InsufficientMemory")
        await blocker.delete()
        for job in (big, *small):
            await job.succeeds()
        assert system.started().index("big") == 3  # the blocker, two that passed it, and it


async def test_a_gpu_is_held_for_a_large_job_that_small_ones_would_pass_for_ever(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"maxBypasses": 1})
        first = await system.job("first", partition, gpuMemory="10Gi", sim=LONG)
        await first.runs()
        big = await system.job("big", partition, gpuMemory="36Gi")
        await big.waits("InsufficientMemory")
        second = await system.job("second", partition, gpuMemory="10Gi", sim=LONG)
        await second.runs()
        third = await system.job("third", partition, gpuMemory="10Gi")
        await third.waits("GPUHeld")
        await big.waits("GPUHeld", "is held for it")
        await first.delete()
        await second.delete()
        await big.succeeds()
        await third.succeeds()
        assert system.started()[-2:] == ["big", "third"]


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
