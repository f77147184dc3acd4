"""The order of the queue."""

from collections import Counter
from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partita.scheduling.queue_order import fair_order
from partita_policies import GPU, Job
from partita_policies.amounts import DominantShare, GPUAmounts, capacity_of, share_of
from support.strategies import queues

GIB = 2**30
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


def test_ten_thousand_jobs_of_one_tenant_do_not_push_back_the_first_of_another():
    many = [job(f"many-{n:05}", "crowd", submitted=float(n)) for n in range(10_000)]
    single = job("single", "team-b", submitted=20_000.0)
    assert order(*many, single).index("single") <= 1
    running = {"crowd": 40 * GIB}
    assert order(*many, single, held=running)[0] == "single"


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


def test_who_holds_much_already_waits_longer():
    mine, theirs = job("mine", "a", submitted=1.0), job("theirs", "b", submitted=2.0)
    assert order(mine, theirs) == ["mine", "theirs"]
    assert order(mine, theirs, held={"a": GIB}) == ["theirs", "mine"]


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
