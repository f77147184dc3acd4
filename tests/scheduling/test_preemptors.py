"""Several preemptions at a time: a slow victim delays its own preemptor alone."""

from datetime import timedelta
from typing import Any

from partita.models.quantities import format_time
from partita.pods.termination import ADDED_GRACE
from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.cycle_steps import SEARCH_AGAIN
from partita.scheduling.preemption import TERMINATION_SLACK
from scheduling.cycles import NOW, World, started
from support.builders import GIB, allocation, at, gpus_up, job_body, server_body, take
from support.claims import claim_entry, claiming_pod_body


def full_of(*servers: tuple[str, ...], memory: int = 10, **spec: Any) -> World:
    """GPUs of 40 GiB, full of jobs of priority 0 with these names."""
    bodies = [
        server_body(
            f"shared-{n}",
            allocations={
                f"claim-{name}": allocation(name, memory=memory * GIB, since=at(i))
                for i, name in enumerate(names)
            },
        )
        for n, names in enumerate(servers)
    ]
    world = World(*bodies, preemption="LowerPriority", **spec)
    for names in servers:
        for name in names:
            world.state.apply_job(job_body(name))
    return world


def victims(result: CycleResult) -> dict[str, set[str]]:
    return {
        p.job.name.partition("/")[2]: {v.job.removeprefix("claim-") for v in p.victims}
        for p in result.preemptions
    }


async def test_each_of_several_preemptors_gets_its_victims_in_one_cycle():
    world = full_of(("a", "b", "c", "d"), ("e", "f", "g", "h"))
    world.submit("large", 30, priority=5)
    world.submit("small", 10, priority=5)
    assert victims(await world.cycle()) == {"large": {"b", "c", "d"}, "small": {"a"}}


async def test_two_preemptors_on_one_gpu_end_different_jobs():
    world = full_of(("a", "b", "c", "d"))
    world.submit("first", 10, priority=5)
    world.submit("second", 20, priority=5)
    assert victims(await world.cycle()) == {"first": {"d"}, "second": {"b", "c"}}
    assert victims(await world.cycle()) == {}


async def test_among_equals_the_namespace_with_the_largest_share_gives():
    world = full_of(("a", "b", "c"))
    ledger = {
        f"claim-{name}": allocation(name, namespace=space, memory=10 * GIB, since=at(i))
        for i, (name, space) in enumerate((("a", "much"), ("b", "much"), ("c", "little")))
    }
    world.report("shared-0", allocations=ledger)
    world.submit("large", 20, priority=5, namespace="other")
    assert victims(await world.cycle()) == {"large": {"b"}}


async def test_a_slow_victim_of_one_preemptor_does_not_delay_another():
    world = full_of(("slow",), ("a", "b", "c", "d"), memory=10)
    world.submit("large", 40, priority=9)
    assert victims(await world.cycle()) == {"large": {"slow"}}
    world.submit("small", 10, priority=5)
    assert victims(await world.cycle()) == {"small": {"d"}}
    world.end("d")
    assert started(await world.cycle()) == ["small"]


async def test_room_that_is_given_back_first_goes_to_the_first_preemptor_and_ends_nobody_more():
    world = full_of(("a", "b", "slow", "d"))
    world.submit("first", 10, priority=9)
    world.submit("second", 10, priority=5)
    assert victims(await world.cycle()) == {"first": {"d"}, "second": {"slow"}}
    world.end("d")
    result = await world.cycle()
    assert (started(result), victims(result)) == (["first"], {})
    world.end("slow")
    result = await world.cycle()
    assert (started(result), victims(result)) == (["second"], {})


async def test_a_higher_priority_takes_over_what_is_being_given_back():
    world = full_of(("slow",), memory=40)
    world.submit("high", 40, priority=5)
    assert victims(await world.cycle()) == {"high": {"slow"}}
    world.submit("higher", 40, priority=9)
    assert victims(await world.cycle()) == {}
    world.end("slow")
    assert started(await world.cycle()) == ["higher"]


async def test_a_victim_that_outlives_its_grace_period_is_not_waited_for():
    world = full_of(("stuck",), memory=40, preemptionGracePeriod="10s")
    world.submit("high", 40, priority=5)
    result = await world.cycle()
    assert victims(result) == {"high": {"stuck"}}
    limit = timedelta(seconds=10 + ADDED_GRACE) + TERMINATION_SLACK
    assert result.again == limit.total_seconds()
    ledger = {"claim-b": allocation("b", memory=40 * GIB)}
    for body in (job_body("b"), *gpus_up(server_body("shared-1", allocations=ledger))):
        take(world.state, body)
    late = await Cycle(
        world.partition, world.state, waiting=world.waiting, released={}, memory=world.memory,
        now=NOW + limit,
    ).run()  # fmt: skip
    assert victims(late) == {"high": {"b"}}


async def waits_and_takes(world: World, name: str) -> None:
    """A job waits for what ends on the first GPU, and its peer preempts another."""
    world.submit("high", 40, priority=5)
    assert victims(await world.cycle()) == {}
    assert world.memory.nominated == {"uid-high": ("shared-0",)}
    world.submit("peer", 40, priority=5)
    assert victims(await world.cycle()) == {"peer": {name}}


async def test_another_operator_waits_for_what_the_one_before_preempted():
    world = full_of(("victim",), ("other",), memory=40)
    ended = {"number": 1, "outcome": "Preempted", "endTime": NOW.isoformat()}
    world.state.apply_job(job_body("victim", status={"attempts": [ended]}))
    await waits_and_takes(world, "other")


async def test_a_claim_whose_pod_is_being_deleted_is_waited_for_after_a_restart():
    stays = {"claim-stays": claim_entry("stays-gpu", pod="stays", memory="40Gi")}
    world = with_a_claim_that_leaves(server_body("shared-1", allocations=stays), memory="40Gi")
    world.state.apply_pod(claiming_pod_body("stays", node="node-1"))
    await waits_and_takes(world, "stays")


def with_a_claim_that_leaves(*others: Any, memory: str = "30Gi") -> World:
    """A GPU of which a Pod that is being deleted has memory, as another operator finds it."""
    entry = claim_entry("leaves-gpu", pod="leaves", memory=memory)
    world = World(
        server_body(allocations={"claim-leaves": entry}),
        *others,
        preemption="LowerPriority",
        services={"percent": 100},
    )
    leaving = {"deletionTimestamp": format_time(NOW + timedelta(seconds=30))}
    world.state.apply_pod(claiming_pod_body("leaves", node="node-1", metadata=leaving))
    return world


async def test_what_is_being_given_back_is_held_again_after_a_restart_before_services_start():
    world = with_a_claim_that_leaves()
    world.submit("high", 40, priority=5)
    world.submit("service", 10, lasting=True)
    result = await world.cycle()
    assert (started(result), victims(result)) == ([], {})
    assert world.memory.nominated == {"uid-high": ("shared-0",)}
    world.end("leaves")
    assert started(await world.cycle()) == ["high"]


async def test_what_a_job_gives_back_by_itself_is_not_held_after_a_restart():
    """It ends for another reason than preemption: the job that waits has no higher priority."""
    world = with_a_claim_that_leaves()
    world.submit("equal", 40)
    world.submit("service", 10, lasting=True)
    assert started(await world.cycle()) == ["service"]


async def test_every_waiting_job_is_searched_for_however_many_cannot_be_helped():
    world = full_of(("a", "b", "c", "d"))
    world.state.apply_job(job_body("a", priority=9))
    for n in range(20):  # of which a cycle searches for eight
        world.submit(f"hopeless-{n}", 31 + n % 9, priority=8, clients=n + 1)
    world.submit("high", 10, priority=7)
    found = []
    for _ in range(3):
        result = await world.cycle()
        found.append(victims(result))
        assert (result.again == SEARCH_AGAIN) == (len(found) < 3)
    assert found == [{}, {}, {"high": {"d"}}]
