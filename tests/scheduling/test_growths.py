"""Claims that ran out of memory get more in a cycle, as far as the rules of the guard allow it.

The GPUs have 40 GiB each.
"""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.models.partition import Quota
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.guard import Guard
from partita.scheduling.ledger import Held
from partita_policies import GPU, Job
from partita_policies.amounts import GPUAmounts, held_by
from scheduling.cycles import World, first_fit, started
from support.builders import GIB, allocation, server_body
from support.strategies import several_gpus


def with_claims(name: str = "shared-0", **memory: int) -> dict[str, Any]:
    """A GPU with allocations of so many GiB, by name."""
    ledger = {f"claim-{k}": allocation(k, memory=v * GIB, lasting=True) for k, v in memory.items()}
    return server_body(name, allocations=ledger)


def growth(name: str, memory: int, *, server: str = "shared-0", **fields: Any) -> Growth:
    movable = fields.pop("movable", False)
    job = Job(
        f"claim-{name}", f"team-a/{name}", "team-a", memory=memory * GIB, lasting=True, **fields
    )
    return Growth(server, job, movable=movable)


async def cycle(world: World, *growths: Growth, protected: tuple[str, ...] = ()) -> CycleResult:
    return await world.cycle(growths={g.job.id: g for g in growths}, protected=protected)


def grown(result: CycleResult) -> dict[str, int]:
    return {g.job.id.removeprefix("claim-"): g.job.memory // GIB for g in result.grown}


async def test_it_comes_before_the_queue() -> None:
    world = World(with_claims(serve=8), decide=first_fit)
    world.submit("first", 30)
    world.submit("second", 20)
    result = await cycle(world, growth("serve", 12))
    assert grown(result) == {"serve": 12}
    assert started(result) == ["second"]


async def test_what_does_not_fit_waits_and_says_why() -> None:
    body = with_claims(serve=8)
    body["status"]["allocations"]["claim-train"] = allocation("train", memory=18 * GIB)
    result = await cycle(World(body, services={"percent": 100}), growth("serve", 24))
    assert (result.grown, result.moves) == ([], [])
    assert result.not_grown == {
        "claim-serve": "it needs 16.0 GiB more, and shared-0 has 14.0 GiB free"
    }


async def test_the_quota_of_its_namespace_holds() -> None:
    quotas = [{"namespace": "team-a", "memory": "10Gi", "jobs": 1}]
    world = World(with_claims(serve=8), quotas=quotas)
    assert grown(await cycle(world, growth("serve", 10))) == {"serve": 10}
    result = await cycle(world, growth("serve", 11))
    assert "8.0 GiB of 10.0 GiB of namespace team-a" in result.not_grown["claim-serve"]


async def test_the_share_of_services_holds() -> None:
    world = World(with_claims(serve=8, other=10), services={"percent": 50})
    assert grown(await cycle(world, growth("serve", 10))) == {"serve": 10}
    result = await cycle(world, growth("serve", 11))
    said = "20.0 GiB of GPU memory together (services.percent 50), have 18.0 GiB, and this needs"
    assert f"services may have {said} 3.0 GiB: " in result.not_grown["claim-serve"]
    batch = replace(growth("serve", 11), job=replace(growth("serve", 11).job, lasting=False))
    assert grown(await cycle(world, batch)) == {"serve": 11}


async def test_the_highest_priority_gets_the_last_memory() -> None:
    world = World(with_claims(a=10, b=10), services={"percent": 100})
    result = await cycle(world, growth("a", 25), growth("b", 25, priority=5))
    assert grown(result) == {"b": 25}


async def test_a_gpu_that_is_held_for_a_preemptor_is_not_taken() -> None:
    world = World(with_claims(serve=8), services={"percent": 100})
    world.memory.nominated["uid-high"] = ("shared-0",)
    result = await cycle(world, growth("serve", 12))
    assert "held" in result.not_grown["claim-serve"]


async def test_one_that_was_raised_already_is_left_alone() -> None:
    body = allocation("serve", memory=12 * GIB, lasting=True, grownSince="2026-01-01T12:00:00Z")
    world = World(server_body(allocations={"claim-serve": body}))
    assert not (await cycle(world, growth("serve", 12))).grown


class TestMoves:
    async def test_it_moves_where_its_gpu_has_no_room_and_another_has(self) -> None:
        world = World(
            with_claims(serve=8, other=30), server_body("shared-1"), services={"percent": 100}
        )
        result = await cycle(world, growth("serve", 12, movable=True))
        assert [g.job.id for g in result.moves] == ["claim-serve"]

    async def test_it_stays_where_an_eviction_would_not_help(self) -> None:
        full = with_claims(serve=8, other=30)
        everything = {"services": {"percent": 100}}
        movable = growth("serve", 12, movable=True)
        nowhere = World(full, with_claims("shared-1", more=35), **everything)
        assert not (await cycle(nowhere, movable)).moves
        world = World(full, server_body("shared-1"), **everything)
        assert not (await cycle(world, growth("serve", 12))).moves
        assert not (await cycle(world, movable, protected=("claim-serve",))).moves
        limited = World(full, server_body("shared-1"), services={"percent": 50})
        assert not (await cycle(limited, movable)).moves


@settings(max_examples=150, deadline=None)
@given(several_gpus, st.integers(0, 100), st.integers(0, 160), st.data())
def test_no_growth_breaks_a_limit(
    there: tuple[GPU, ...], percent: int, quota: int, data: st.DataObject
) -> None:
    total = sum(one.memory for gpu in there for one in gpu.running)
    most = max(quota * GIB, total, 1 << 20)
    limits = {"red": Quota(namespace="red", memory=most)}
    guard = Guard(
        there, {}, quotas=limits, held={"red": Held(GPUAmounts(total), 1)}, services_percent=percent
    )
    allowed = max(
        held_by(there, lasting=True).memory, sum(gpu.memory for gpu in there) * percent // 100
    )
    for gpu in there:
        for one in (one for one in gpu.running if not one.alone):
            more = data.draw(st.integers(0, 80)) * GIB // 4
            job = Job(one.job, one.job, "red", memory=one.memory + more, lasting=one.lasting)
            if guard.not_grown(job, gpu.id) is None:
                guard.grow(job, gpu.id)
                assert guard.capacity[gpu.id].memory >= 0 or not more
    assert held_by(guard.remaining(), lasting=True).memory <= allowed
    assert guard.held["red"].amounts.memory <= most
