"""The highest priority that a job may have: who may set it, and what a job above it is told."""

from __future__ import annotations

from support.job import Job
from support.queues import LONG
from support.system import System


def capped(job: Job) -> tuple[str, str, str]:
    """Status, reason and message of the condition PriorityCapped."""
    (found,) = [c for c in job.status["conditions"] if c["type"] == "PriorityCapped"]
    return found["status"], found["reason"], found.get("message", "")


async def test_a_priority_above_the_cap_ends_nobody_until_the_cap_is_raised(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority")
        victim = await system.job("victim", partition, gpuMemory="30Gi", sim=LONG)
        await victim.runs()
        greedy = await system.job("greedy", partition, gpuMemory="30Gi", priority=1_000_000)
        await greedy.waits("InsufficientMemory")
        await greedy.until(lambda s: s.get("effectivePriority") == 0)
        status, reason, message = capped(greedy)
        assert (status, reason) == ("True", "AboveMaxPriority")
        assert message == (
            f"spec.priority 1000000 counts as 0, the highest priority that partition {partition} "
            f"allows namespace {system.namespace}: write priority: 0, or have an administrator "
            "raise the partition's maxPriority or the maxPriority of the namespace's quota"
        )
        await system.history.until(
            lambda: ("PriorityCapped", message) in system.history.events("greedy"),
            what=lambda: system.history.events("greedy"),
        )
        assert victim.outcomes == [""]
        quota = {"namespace": system.namespace, "maxPriority": 1_000_000}
        await system.change_partition(partition, quotas=[quota])
        await greedy.runs()
        assert victim.outcomes == ["Preempted"]
        await greedy.until(lambda s: "effectivePriority" not in s)
        assert capped(greedy) == ("False", "WithinMaxPriority", "")
