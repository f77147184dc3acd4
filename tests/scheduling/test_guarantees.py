"""What a namespace is guaranteed may be borrowed, and comes back when it is asked for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.scheduling.reasons import Reason
from scheduling.cycles import World, first_fit, started
from scheduling.test_preemptors import victims
from support.builders import GIB, allocation, at, job_body, server_body

MINE = {"mine": 20}
Held = tuple[str, str, int]
"""A job that runs: its name, its namespace and GiB."""


def world(*held: Held, guaranteed: dict[str, int] = MINE, gpus: int = 1) -> World:
    """GPUs of 40 GiB, of which the first has these jobs."""
    ledger = {
        f"claim-{name}": allocation(name, namespace=space, memory=memory * GIB, since=at(age))
        for age, (name, space, memory) in enumerate(held)
    }
    bodies = [server_body(f"shared-{n}", allocations={} if n else ledger) for n in range(gpus)]
    quotas = [{"namespace": name, "guaranteed": f"{most}Gi"} for name, most in guaranteed.items()]
    made = World(*bodies, decide=first_fit, quotas=quotas)
    for name, space, _ in held:
        made.state.apply_job(job_body(name, namespace=space))
    return made


def borrowed(*names: str, memory: int = 10) -> list[Held]:
    return [(name, "others", memory) for name in names]


@pytest.mark.parametrize(("names", "memory"), [("abcd", 10), ("abcdefghijklmnop", 1)],
                         ids=["memory", "places"])  # fmt: skip
async def test_what_was_borrowed_comes_back_from_who_started_last(names: str, memory: int) -> None:
    partition = world(*borrowed(*names, memory=memory))
    partition.submit("asks", 10, namespace="mine")
    assert victims(await partition.cycle()) == {"asks": {names[-1]}}
    partition.end(names[-1])
    assert started(await partition.cycle()) == ["asks"]


async def test_nobody_gets_back_more_than_is_guaranteed() -> None:
    partition = world(*borrowed("a", "b", "c", "d"))
    for name in ("one", "two", "three"):
        partition.submit(name, 10, namespace="mine")
    assert victims(await partition.cycle()) == {"one": {"d"}, "two": {"c"}}
    assert victims(await partition.cycle()) == {}


async def test_who_has_no_more_than_its_own_guarantee_keeps_it() -> None:
    partition = world(*borrowed("a", "b", "c"), guaranteed={"mine": 20, "others": 30})
    partition.submit("asks", 20, namespace="mine")
    assert victims(await partition.cycle()) == {}


async def test_a_higher_priority_keeps_what_it_borrowed() -> None:
    partition = world(*borrowed("a", "b", "c", "d"))
    partition.state.apply_job(job_body("d", namespace="others", priority=5))
    partition.submit("asks", 10, namespace="mine")
    assert victims(await partition.cycle()) == {"asks": {"c"}}


async def test_a_job_of_unknown_size_asks_for_no_guarantee() -> None:
    partition = world(*borrowed("a"))
    partition.submit("asks", 0, namespace="mine", alone=True)
    assert victims(await partition.cycle()) == {}


async def test_services_borrow_nothing_that_is_guaranteed() -> None:
    partition = world(guaranteed={"mine": 30})
    partition.submit("theirs", 12, namespace="others", lasting=True)
    partition.submit("own", 12, namespace="mine", lasting=True)
    result = await partition.cycle()
    assert started(result) == ["own"]
    why = result.why["uid-theirs"]
    assert why.reason is Reason.SERVICES_LIMIT
    assert why.message.startswith(
        "services may have 10.0 GiB of GPU memory that is guaranteed to nobody "
        "(quotas[].guaranteed), and would have 12.0 GiB of it with this one"
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
async def test_no_namespace_below_its_guarantee_waits_for_one_above_its_own(seed: int) -> None:
    """Jobs of equal priority that never end: preemption comes to rest, and then it holds."""
    dice = random.Random(seed)
    guaranteed = {"red": dice.choice([0, 20, 40]), "green": dice.choice([10, 20]), "blue": 20}
    partition = world(guaranteed={k: v for k, v in guaranteed.items() if v}, gpus=3)
    memory_of: dict[str, tuple[str, int]] = {}
    for number in range(dice.randint(5, 25)):
        name, space = f"job-{number}", dice.choice([*guaranteed, "nobody"])
        memory_of[name] = space, dice.choice([2, 5, 10])
        partition.submit(name, memory_of[name][1], namespace=space)
    for _ in range(60):
        result = await partition.cycle()
        ended = set().union(*victims(result).values())
        partition.end(*ended)
        for name in ended:  # it is queued again
            partition.submit(name, memory_of[name][1], namespace=memory_of[name][0])
        if not ended and not result.placed and not partition.memory.nominated:
            break
    else:
        raise AssertionError("preemption does not come to rest")
    held = dict.fromkeys((*guaranteed, "nobody"), 0)
    for server in partition.state.servers_of("shared"):
        for entry in server.status.allocations.values():
            held[entry.namespace] += entry.memory // GIB
    above = {space for space, has in held.items() if has > guaranteed.get(space, 0)}
    for job in partition.waiting.values():
        space = job.namespace
        within = held[space] + job.memory // GIB <= guaranteed.get(space, 0)
        assert not (within and above - {space}), (job.name, held, guaranteed)
