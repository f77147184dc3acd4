"""Whose turn comes: jobs that were passed over, and those that others are ended for."""

import pytest

from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.reasons import Reason
from partita_policies import Placement, Snapshot
from scheduling.cycles import World, first_fit, last_first, reasons, runner, started
from support.builders import GIB, a_partition, allocation, at, server_body


class TestAging:
    @pytest.mark.parametrize("limit", [1, 3])
    async def test_nobody_is_passed_over_more_often_than_allowed(self, limit: int):
        """A policy that always serves the youngest; 8 GiB end and come in each cycle."""
        world = World(decide=last_first, policy={"maxBypasses": limit})
        world.submit("filler", 32)
        await world.cycle()
        world.submit("large", 20)
        passed = 0
        for n in range(limit + 3):
            world.submit(f"small-{n}", 8, submitted=99.0 + n)
            result = await world.cycle()
            passed += bool(started(result))
            world.end(f"small-{n}")
        assert passed == limit
        assert reasons(result)["large"] is Reason.GPU_HELD
        world.end("filler")
        assert "large" in started(await world.cycle())

    async def test_the_bypasses_are_shown_to_the_policy(self):
        seen = []
        world = World(decide=lambda s: (seen.append(s.jobs[0].bypasses), last_first(s))[1])
        world.submit("large", 60)
        for n in range(3):
            world.submit(f"small-{n}", 8, submitted=50.0 + n)
            await world.cycle()
        assert seen == [0, 1, 2]

    async def test_no_gpu_is_held_for_a_job_that_its_quota_keeps_waiting(self):
        quota = [{"namespace": "team-a", "memory": "10Gi"}]
        world = World(policy={"maxBypasses": 1}, quotas=quota)
        world.submit("alone", 0, alone=True)
        world.memory.aging.bypasses["uid-alone"] = 99
        world.submit("other", 8, namespace="team-b")
        result = await world.cycle()
        assert started(result) == ["other"]
        assert reasons(result) == {"alone": Reason.QUOTA_EXCEEDED}

    async def test_a_job_served_first_is_checked_again_after_the_policy_has_thought(self):
        world = World(
            server_body(), server_body("shared-1"), policy={"maxBypasses": 1}, decide=first_fit
        )
        world.submit("aged", 30)
        world.memory.aging.bypasses["uid-aged"] = 99
        world.submit("other", 30)

        def loses(snapshot: Snapshot) -> list[Placement]:
            world.report("shared-0", memory="8Gi")
            return first_fit(snapshot)

        world.memory.runner = runner(loses)
        result = await world.cycle()
        assert started(result) == ["other"]
        assert "uid-aged" in result.why


def busy(*priorities: int, memory: int = 10) -> World:
    """A GPU full of jobs `low-0`, `low-1`, ... of these priorities."""
    world = World(preemption="LowerPriority")
    for n, priority in enumerate(priorities):
        world.submit(f"low-{n}", memory, priority=priority)
        ledger = {
            uid: a.dump() for uid, a in world.state.servers["shared-0"].status.allocations.items()
        }
        ledger[f"claim-low-{n}"] = allocation(f"low-{n}", memory=memory * GIB, since=at(n))
        world.report("shared-0", allocations=ledger)
    world.waiting.clear()
    return world


def victims(result: CycleResult) -> set[str]:
    return {v.job.removeprefix("claim-") for p in result.preemptions for v in p.victims}


class TestPreemption:
    async def test_a_running_job_is_protected_by_its_effective_priority_alone(self):
        world = busy(9, 9, 9, 9)
        spec = {"preemption": "LowerPriority", "sharing": {"memoryReservePercent": 0}}
        quota = {"namespace": "team-b", "maxPriority": 5}
        world.partition = a_partition(quotas=[quota], **spec)
        world.submit("high", 10, namespace="team-b", priority=5)
        assert victims(await world.cycle()) == {"low-3"}

    async def test_nobody_is_ended_for_a_job_over_its_quota(self):
        world = busy(0, 0, 0, 0)
        world.partition = a_partition(
            preemption="LowerPriority", sharing={"memoryReservePercent": 0},
            quotas=[{"namespace": "team-a", "memory": "40Gi"}],
        )  # fmt: skip
        world.submit("high", 10, priority=5)
        assert victims(await world.cycle()) == set()

    async def test_never_means_never(self):
        world = busy(0, 0, 0, 0)
        world.partition = a_partition(sharing={"memoryReservePercent": 0})
        world.submit("high", 10, priority=5)
        assert victims(await world.cycle()) == set()

    async def test_a_job_started_in_this_cycle_is_no_victim_of_it(self):
        world = busy(9, 9)
        world.submit("high", 30, priority=5)
        world.submit("low", 20)
        result = await world.cycle()
        assert (victims(result), started(result)) == (set(), ["low"])
        assert victims(await world.cycle()) == set()

    async def test_a_nomination_that_came_to_nothing_is_dropped(self):
        world = busy(0, 0, 0, 0)
        world.submit("high", 10, priority=5)
        await world.cycle()
        world.report("shared-0", memory="8Gi")
        world.end("low-3")
        await world.cycle()
        assert world.memory.nominated == {}

    async def test_a_nominated_job_that_is_gone_frees_the_gpu(self):
        world = busy(0, 0, 0, 0)
        world.submit("high", 10, priority=5)
        await world.cycle()
        world.waiting.clear()
        world.end("low-3")
        world.submit("other", 10)
        assert started(await world.cycle()) == ["other"]
