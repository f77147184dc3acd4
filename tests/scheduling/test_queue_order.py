"""The order of the queue."""

from collections import Counter
from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partita.pause import Pause
from partita.scheduling.partition_state import Reservation
from partita.scheduling.queue_order import age_order, fair_order
from partita.scheduling.waiting_jobs import CONSIDERED, WaitingJobs
from partita_policies import GPU, Job, Snapshot
from partita_policies.amounts import DominantShare, GPUAmounts, capacity_of, share_of
from scheduling.cycles import NOW, World, started
from support.strategies import GIB, queues

GPUS = [GPU(name, "node", 40 * GIB, max_jobs=16) for name in ("one", "two")]
PARTITION = capacity_of(GPUS)


def job(name: str, namespace: str = "team-a", *, memory: int = 4, **fields) -> Job:
    fields.setdefault("submitted", 0.0)
    return Job(name, f"{namespace}/{name}", namespace, memory=memory * GIB, **fields)


def names(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def order(*jobs: Job, held: dict[str, int] | None = None, **weights: int) -> list[str]:
    has = {team: GPUAmounts(memory) for team, memory in (held or {}).items()}
    found = fair_order(jobs, held=has, gpus=GPUS, weights=weights)
    return names(found)


def test_a_reclaimed_job_goes_first_among_the_jobs_of_its_priority():
    waiting = [job("old", submitted=1.0), job("urgent", submitted=99.0, priority=1)]
    back = [
        job(name, "holds-much", submitted=50.0 + age, reclaimed=True)
        for age, name in enumerate(["back", "also-back"])
    ]
    held = {"holds-much": 40 * GIB}
    assert order(*waiting, *back, held=held) == ["urgent", "back", "also-back", "old"]


class TestConsidered:
    """Which jobs of a namespace a cycle looks at."""

    async def test_behind_so_many_of_a_namespace_jobs_wait_for_their_own(self):
        seen = list[Snapshot]()
        world = World(decide=lambda snapshot: seen.append(snapshot) or [])
        flood = [world.submit(f"flood-{n}") for n in range(CONSIDERED + 2)]
        first = world.submit("urgent", priority=1)
        other = world.submit("other", namespace="team-b")
        await world.cycle()
        asked = {job.id for job in seen[0].jobs}
        assert asked == {job.id for job in (*flood[: CONSIDERED - 1], first, other)}

    async def test_one_whose_gpu_is_kept_is_considered_behind_them(self):
        world = World(decide=lambda _: [])
        late = world.submit("late")
        world.memory.reserved[late.id] = Reservation(late, ("shared-0",), Pause(NOW, NOW), "fifo")
        for n in range(CONSIDERED):
            world.submit(f"urgent-{n}", priority=1)
        assert started(await world.cycle()) == ["late"]

    @given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=40))
    def test_changed_jobs_stay_in_order_and_those_that_come_behind_are_named(
        self, changes: list[tuple[str, int]]
    ):
        waiting, expected, behind = WaitingJobs(3), dict[str, Job](), set[str]()
        for name, priority in changes:
            if not priority:
                waiting.pop(name, None)
                expected.pop(name, None)
            else:
                waiting[name] = expected[name] = job(name, priority=priority, submitted=1.0)
            in_order = names(sorted(expected.values(), key=age_order))
            assert (dict(waiting), list(waiting.considered())) == (expected, in_order[:3])
            before, behind = behind, {uid for uid in waiting if waiting.is_behind(uid)}
            assert behind == set(in_order[3:])
            assert behind - before <= set(waiting.newly_behind()) <= behind


def test_a_crowd_of_jobs_that_run_alone_counts_with_whole_gpus():
    many = [job(f"many-{n:03}", "crowd", memory=0, alone=True) for n in range(100)]
    few = [job(f"few-{n}", "team-b", submitted=50.0) for n in range(8)]
    found = order(*many, *few)
    assert [found.index(f"few-{n}") for n in range(8)] == list(range(1, 9))


def test_tenants_take_turns_by_the_memory_that_they_ask_for():
    large = [job(f"large-{n}", "a", memory=8, submitted=n) for n in range(2)]
    small = [job(f"small-{n}", "b", memory=4, submitted=10 + n) for n in range(4)]
    assert order(*large, *small) == [
        "large-0", "small-0", "small-1", "large-1", "small-2", "small-3",
    ]  # fmt: skip


def test_who_used_much_yesterday_goes_behind_who_did_not():
    jobs = [
        job(f"{team}-{n}", team, memory=8, submitted=n) for n in range(3) for team in ("a", "b")
    ]
    found = fair_order(jobs, held={}, gpus=GPUS, weights={}, past={"a": 0.15})
    assert names(found) == ["b-0", "b-1", "a-0", "b-2", "a-1", "a-2"]


def test_a_weight_is_a_share():
    jobs = [job(f"{team}-{n}", team, submitted=n) for n in range(30) for team in ("a", "b")]
    first = order(*jobs, a=2)[:30]
    assert Counter(name[0] for name in first) == {"a": 20, "b": 10}


def test_the_largest_share_counts_whatever_it_is_a_share_of():
    hungry = [job(f"hungry-{n}", "a", memory=1, clients=24, submitted=n) for n in range(4)]
    large = [job(f"large-{n}", "b", memory=20, submitted=10 + n) for n in range(4)]
    assert order(*hungry, *large) == [
        f"{kind}-{n}" for n in range(4) for kind in ("hungry", "large")
    ]


def test_a_dominant_share_names_its_resource():
    assert share_of(GPUAmounts(8 * GIB, 1, 48), PARTITION) == DominantShare(0.5, "clients")
    assert share_of(GPUAmounts(20 * GIB, 4, 8), PARTITION) == DominantShare(0.25, "memory")
    assert share_of(GPUAmounts(), GPUAmounts()).share == 0.0


@given(queues(max_jobs=12), st.randoms(use_true_random=False))
def test_nobody_is_lost_and_priority_always_leads(jobs, random):
    shuffled = list(jobs)
    random.shuffle(shuffled)
    fair = partial(
        fair_order, held={"red": GPUAmounts(5 * GIB)}, gpus=GPUS, weights={"green": 3}
    )  # fmt: skip
    found = fair(shuffled)
    assert sorted(names(found)) == sorted(j.id for j in jobs)
    assert all(a.priority >= b.priority for a, b in pairwise(found))
    assert found == fair(found)
    for one, other in pairwise([j for j in found if j.namespace == "red"]):
        if (one.priority, one.reclaimed) == (other.priority, other.reclaimed):
            assert (one.submitted, one.name) <= (other.submitted, other.name)
