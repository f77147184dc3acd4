"""What `partita.scheduling.reservations` guarantees, in virtual time, with unfair policies."""

import random
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.scheduling.reasons import Reason
from partita_policies import Placement, Snapshot
from scheduling.cycles import Decide, World, first_fit, last_first, reasons, started
from scheduling.test_cycle import decide_directly
from support.builders import allocation, server_body

LONGEST = 4
"""Cycles that a job runs at most."""
LIMIT = 2
"""`maxBypasses`."""


def smallest_first(snapshot: Snapshot) -> list[Placement]:
    """Never start a large job while small ones come."""
    return first_fit(_sorted(snapshot))


def _sorted(snapshot: Snapshot) -> Any:
    jobs = sorted(snapshot.jobs, key=lambda job: (-job.priority, job.memory, -job.submitted))
    return SimpleNamespace(gpus=snapshot.gpus, jobs=jobs, nodes=snapshot.nodes)


@dataclass
class Play:
    """Jobs that come and end while cycles go by."""

    world: World
    dice: random.Random
    now: int = 0

    def __post_init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.started_at: dict[str, int] = {}
        self.names = count()

    def submit(self, memory: int, name: str = "", **fields: Any) -> str:
        name = name or f"job-{next(self.names)}"
        self.world.submit(name, memory, **fields)
        return name

    async def step(self) -> None:
        """Let a cycle's worth of time go by."""
        self.now += 1
        over = [name for name, end in self.ends.items() if end <= self.now]
        self.world.end(*over)
        for name in over:
            del self.ends[name]
        for name in started(await self.world.cycle()):
            self.started_at[name] = self.now
            self.ends[name] = self.now + self.dice.randint(1, LONGEST)


def play(decide: Decide, seed: int, *, gpus: int = 2, **spec: Any) -> Play:
    servers = [server_body(f"shared-{n}") for n in range(gpus)]
    world = World(*servers, policy={"maxBypasses": LIMIT}, **spec)
    decide_directly(world, decide)
    return Play(world, random.Random(seed))


def bound(older: int, namespaces: int) -> int:
    """Cycles within which a job starts; see `partita.scheduling.reservations`."""
    until_aged = (LIMIT + older + 1) * LONGEST
    return until_aged + namespaces * (older + 1) * LONGEST


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([first_fit, last_first]), st.integers(0, 1000))
async def test_a_namespace_that_holds_much_is_not_passed_for_ever(decide: Decide, seed: int):
    """Its next job is behind the small jobs of another namespace, which never stop coming."""
    world = play(decide, seed, gpus=1)
    ledger = {"claim-held": allocation("held", namespace="team-a", memory=16 << 30)}
    world.world.report("shared-0", allocations=ledger)
    world.submit(23, "next", namespace="team-a")
    for _ in range(bound(0, 2)):
        world.submit(2, namespace="team-b")
        await world.step()
    assert "next" in world.started_at


policies = st.sampled_from([first_fit, last_first, smallest_first])


@settings(max_examples=12, deadline=None)
@given(policies, st.integers(0, 1000), st.integers(1, 3), st.integers(1, 3))
async def test_every_job_starts_within_the_bound_whatever_younger_jobs_come(
    decide: Decide, seed: int, namespaces: int, large: int
):
    """Large jobs wait in a stream of small ones that never ends, of the same priority."""
    world = play(decide, seed)
    waiting = [
        world.submit(world.dice.randint(25, 40), f"large-{n}", namespace=f"team-{n % namespaces}")
        for n in range(large)
    ]
    last = bound(large - 1, namespaces)
    for _ in range(last):
        for _ in range(world.dice.randint(2, 6)):
            team = f"team-{world.dice.randrange(namespaces)}"
            world.submit(world.dice.randint(5, 15), namespace=team)
        await world.step()
    assert set(waiting) <= world.started_at.keys()


@settings(max_examples=8, deadline=None)
@given(policies, st.integers(0, 1000))
async def test_the_bound_counts_from_when_no_higher_priority_waits_any_more(
    decide: Decide, seed: int
):
    world = play(decide, seed, gpus=1)
    world.submit(36, "low")
    for _ in range(12):
        for _ in range(4):
            world.submit(10, priority=5)
        await world.step()
    while any(job.priority for job in world.world.waiting.values()):
        await world.step()
    for _ in range(bound(0, 1)):
        for _ in range(4):
            world.submit(10)
        await world.step()
    assert "low" in world.started_at


class TestAgedAndHigher:
    """A job that was passed over too often, and jobs of a higher priority."""

    def world(self, *busy: int) -> World:
        ledger = {
            f"claim-busy-{n}": allocation(f"busy-{n}", memory=memory << 30)
            for n, memory in enumerate(busy)
        }
        world = World(server_body(allocations=ledger), policy={"maxBypasses": 1})
        world.submit("aged", 30)
        world.memory.aging.bypasses["uid-aged"] = 99
        return world

    async def test_no_gpu_is_held_against_a_higher_priority(self):
        world = self.world(20)
        world.submit("high", 15, priority=5)
        assert started(await world.cycle()) == ["high"]

    async def test_none_of_the_same_priority_slips_in_with_a_higher_one(self):
        world = self.world(20)
        world.submit("same", 5)
        world.submit("high", 10, priority=5)
        assert started(await world.cycle()) == ["high"]

    async def test_a_gpu_is_held_against_the_same_and_lower_priorities(self):
        world = self.world(20)
        world.submit("same", 15)
        world.submit("low", 15, priority=-5)
        assert started(await world.cycle()) == []

    async def test_an_aged_job_does_not_start_before_a_higher_priority_that_fits(self):
        world = self.world()
        world.submit("high", 30, priority=5)
        assert started(await world.cycle()) == ["high"]

    async def test_a_higher_priority_that_fits_nowhere_does_not_lift_the_hold(self):
        world = self.world(20)
        world.submit("high", 39, priority=5)
        world.submit("same", 15)
        assert started(await world.cycle()) == []

    async def test_gpus_are_held_for_one_aged_job_at_a_time(self):
        half = {"claim-busy-0": allocation("busy-0", memory=20 << 30)}
        servers = [server_body(f"shared-{n}", allocations=half) for n in range(2)]
        world = World(*servers, policy={"maxBypasses": 1})
        for name in ("aged", "younger"):
            world.submit(name, 30)
            world.memory.aging.bypasses[f"uid-{name}"] = 99
        world.submit("small", 15)
        assert started(await world.cycle()) == ["small"]
        assert world.running("shared-1") == {"busy-0", "small"}

    async def test_the_turn_passes_on_where_no_gpu_is_large_enough(self):
        world = self.world(20)
        world.submit("aged", 41)
        world.submit("next", 30)
        world.memory.aging.bypasses["uid-next"] = 99
        world.submit("small", 15)
        result = await world.cycle()
        assert (started(result), reasons(result)["next"]) == ([], Reason.GPU_HELD)
