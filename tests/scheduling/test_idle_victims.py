"""Idle workloads make room for jobs that wait, and no other service is ended for a job."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.models.quantities import format_time, later
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.reasons import Reason
from scheduling.cycles import NOW, World, first_fit, reasons, started
from support.builders import job_body, server_body
from support.claims import claim_entry

EVICT = {"idle": {"after": "1h", "action": "Evict"}, "services": {"percent": 100}}
LONG_AGO = format_time(later(NOW, -7200))


def server(name: str = "shared-0", **claims: dict[str, Any]) -> dict[str, Any]:
    """A GPU with claims: `memory` in GiB, and whether each is `idle`."""
    ledger, usage = {}, {}
    for pod, claim in claims.items():
        memory, lasting = f"{claim['memory']}Gi", claim.get("lasting", True)
        ledger[f"claim-{pod}"] = claim_entry(pod=pod, memory=memory, lasting=lasting)
        if claim.get("idle"):
            usage[f"claim-{pod}"] = {"idleSince": LONG_AGO}
    return server_body(name, allocations=ledger, status={"usage": {"jobs": usage}})


def ended(result: CycleResult) -> set[str]:
    found = {victim.job for p in result.preemptions for victim in p.victims}
    return {uid.removeprefix("claim-") for uid in found}


async def test_an_idle_workload_is_ended_for_a_job_that_then_fits() -> None:
    world = World(server(idle={"memory": 20, "idle": True}, busy={"memory": 10}), **EVICT)
    world.submit("batch", 25)
    result = await world.cycle()
    assert ended(result) == {"idle"}
    assert result.preemptions[0].idle == {"claim-idle"}


async def test_it_is_not_ended_without_need() -> None:
    world = World(server(idle={"memory": 20, "idle": True}), decide=first_fit, **EVICT)
    world.submit("fits", 15)
    result = await world.cycle()
    assert started(result) == ["fits"]
    assert not result.preemptions
    world.submit("never", 45)
    assert not (await world.cycle()).preemptions


async def test_it_is_kept_for_a_job_of_a_lower_priority_and_where_it_is_only_reported() -> None:
    world = World(server(idle={"memory": 20, "idle": True}), **EVICT)
    world.submit("low", 25, priority=-5)
    assert not (await world.cycle()).preemptions
    world = World(server(idle={"memory": 20, "idle": True}), idle={"after": "1h"})
    world.submit("batch", 25)
    assert not (await world.cycle()).preemptions


def two_idle_ones(memory: int) -> World:
    """Two GPUs with idle ones, and a job that waits for this memory."""
    idle = {"memory": 30, "idle": True}
    world = World(server(one=idle), server("shared-1", two=idle), **EVICT)
    world.submit("batch", memory)
    return world


async def test_a_protected_one_is_left_out_and_the_next_is_ended() -> None:
    world = two_idle_ones(25)
    assert ended(await world.cycle()) == {"one"}
    assert ended(await world.cycle(protected={"claim-one"})) == {"two"}
    assert world.memory.nominated == {"uid-batch": ("shared-1",)}


async def test_the_successor_of_an_idle_service_does_not_take_its_place_back() -> None:
    """It comes first in the queue, and could start there, if another were not waiting for it."""
    world = two_idle_ones(35)
    assert ended(await world.cycle(protected={"claim-one"})) == {"two"}
    world.submit("successor", 30, lasting=True)
    assert ended(await world.cycle()) == {"one"}
    world.end("two")
    assert started(await world.cycle()) == ["batch"]
    world.end("one")
    assert started(await world.cycle()) == ["successor"]


async def test_an_idle_one_is_ended_before_a_busy_one_of_lower_priority() -> None:
    world = World(
        server(low={"memory": 30, "lasting": False}),
        server("shared-1", idle={"memory": 30, "idle": True}),
        preemption="LowerPriority",
        **EVICT,
    )
    world.submit("high", 25, priority=5)
    assert ended(await world.cycle()) == {"idle"}


class TestShareOfServices:
    """What a service that is ended gives back counts for the service that gets its place."""

    async def test_a_service_gets_the_share_of_an_idle_one(self) -> None:
        world = World(
            server(idle={"memory": 20, "idle": True}), **EVICT | {"services": {"percent": 50}}
        )
        world.submit("serve", 15, lasting=True)
        assert ended(await world.cycle()) == {"idle"}
        again = await world.cycle()
        assert (started(again), again.preemptions) == ([], [])
        assert world.memory.nominated == {"uid-serve": ("shared-0",)}
        world.end("idle")
        assert started(await world.cycle()) == ["serve"]

    async def test_a_service_gets_the_share_of_one_of_lower_priority(self) -> None:
        world = World(
            server(low={"memory": 20}), preemption="LowerPriority", services={"percent": 50}
        )
        world.submit("serve", 15, lasting=True, priority=5)
        assert ended(await world.cycle()) == {"low"}

    async def test_one_share_is_given_once(self) -> None:
        world = World(
            server(idle={"memory": 20, "idle": True}),
            server("shared-1"),
            **EVICT | {"services": {"percent": 25}},
        )
        for name in ("first", "second"):
            world.submit(name, 15, lasting=True)
        assert ended(await world.cycle()) == {"idle"}
        world.end("idle")
        result = await world.cycle()
        assert started(result) == ["first"]
        assert reasons(result) == {"second": Reason.SERVICES_LIMIT}

    async def test_nobody_is_ended_where_the_share_would_be_too_small_all_the_same(self) -> None:
        world = World(
            server(idle={"memory": 5, "idle": True}, busy={"memory": 15}),
            **EVICT | {"services": {"percent": 50}},
        )
        world.submit("serve", 10, lasting=True)
        result = await world.cycle()
        assert not result.preemptions
        assert reasons(result) == {"serve": Reason.SERVICES_LIMIT}


_claims = st.fixed_dictionaries(
    {"memory": st.integers(1, 20), "lasting": st.booleans(), "idle": st.booleans()}
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(_claims, max_size=2), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 9)), max_size=5),
    st.sampled_from(["Never", "LowerPriority"]),
    st.sampled_from(["Report", "Evict"]),
    st.data(),
)
async def test_no_busy_service_is_ever_ended_for_batch(
    cluster: list[list[dict[str, Any]]],
    waiting: list[tuple[int, bool, int]],
    preemption: str,
    action: str,
    data: st.DataObject,
) -> None:
    claims = {
        f"pod-{n}-{m}": claim for n, there in enumerate(cluster) for m, claim in enumerate(there)
    }
    protected = {f"claim-{name}" for name in claims if data.draw(st.booleans())}
    servers = [
        server(
            f"shared-{n}",
            **{name: c for name, c in claims.items() if name.startswith(f"pod-{n}-")},
        )
        for n in range(len(cluster))
    ]
    world = World(
        *servers,
        preemption=preemption,
        services={"percent": 100},
        idle={"after": "1h", "action": action},
    )
    for n, (memory, lasting, priority) in enumerate(waiting):
        world.submit(f"job-{n}", memory, lasting=lasting, priority=priority)
        world.state.apply_job(job_body(f"job-{n}", priority=priority))
    for _ in range(3):
        result = await world.cycle(protected=protected)
        for found in result.preemptions:
            for victim in found.victims:
                assert victim.job not in protected
                claim = claims.get(victim.job.removeprefix("claim-"))
                if claim is None:  # a job that started in an earlier cycle
                    assert found.job.priority > victim.priority
                    continue
                if claim["idle"] and action == "Evict":
                    continue
                assert preemption == "LowerPriority"
                assert found.job.priority > victim.priority
                assert found.job.lasting or not claim["lasting"]
