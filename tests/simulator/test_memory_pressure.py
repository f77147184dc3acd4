"""Borrowed memory: who gets it, who is evicted for it, and who never is."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import Placement, create
from partita_policies.memory_pressure import evicted_for
from partita_research.simulator import SimulatedOutcome, simulate, task_of
from partita_research.simulator.workloads import InputError, parse_workload
from simulator.scenes import GIB, Scripted, application, gpus


@dataclass(frozen=True)
class User:
    name: str
    memory: int
    guarantee: int
    ceiling: int


def names(found):
    return None if found is None else [user.name for user in found]


def test_memory_that_is_free_can_be_borrowed_up_to_the_ceiling():
    borrower, other = User("borrower", 4, 4, 8), User("other", 3, 6, 6)
    assert evicted_for(7, borrower, [other], capacity=10) == []
    assert evicted_for(8, borrower, [other], capacity=10) is None  # not free
    assert evicted_for(9, borrower, [], capacity=10) is None  # above its ceiling


def test_a_request_within_the_guarantee_evicts_the_largest_borrowers_until_it_fits():
    small, large = User("small", 3, 2, 8), User("large", 4, 1, 8)
    innocent = User("innocent", 2, 2, 2)
    asking = User("asking", 1, 5, 5)
    assert names(evicted_for(2, asking, [small, innocent, large], capacity=10)) == ["large"]
    assert names(evicted_for(5, asking, [small, innocent, large], capacity=8)) == ["large", "small"]


users = st.builds(
    lambda guarantee, above, share: User(
        "", int((guarantee + above) * share), guarantee, guarantee + above
    ),
    st.integers(0, 20), st.integers(0, 20), st.floats(0, 1),
)  # fmt: skip


@given(st.lists(users, max_size=6), users, st.data())
def test_a_job_within_its_guarantee_always_gets_memory_and_is_never_evicted(others, user, data):
    capacity = sum(other.guarantee for other in [*others, user]) + data.draw(st.integers(0, 10))
    wanted = data.draw(st.integers(0, user.ceiling + 1))
    evicted = evicted_for(wanted, user, others, capacity)
    if wanted <= user.guarantee:
        assert evicted is not None
    for other in evicted or ():
        assert other.memory > other.guarantee
    if evicted is not None:
        left = sum(other.memory for other in others) - sum(other.memory for other in evicted)
        assert wanted <= user.ceiling
        assert left + wanted <= capacity


def burst(name, guarantee, ceiling, memory, **more):
    return task_of(
        application(name, memory=memory, duration=more.pop("duration", 100.0)),
        name,
        memory=int(guarantee * GIB),
        memory_limit=int(ceiling * GIB),
        **more,
    )


def history(result, job):
    return [
        (attempt.outcome, attempt.memory / GIB) for attempt in result.attempts if attempt.job == job
    ]


def test_a_borrower_is_evicted_for_a_guarantee_and_queued_before_older_jobs():
    older = task_of(application("older"), "older")
    borrower = burst("borrower", 4, 10, [9])
    entitled = task_of(application("entitled", memory=[1, 7]), "entitled", memory=7 * GIB)
    urgent = task_of(application("urgent"), "urgent", priority=1, submitted=40)
    policy = Scripted([Placement("borrower", ("gpu-0",)), Placement("entitled", ("gpu-0",))])
    result = simulate([older, borrower, entitled, urgent], gpus(), policy)
    evicted, finished = result.attempts
    assert (evicted.job, evicted.outcome) == ("borrower", SimulatedOutcome.RECLAIMED)
    assert evicted.end == pytest.approx(50)
    assert (finished.job, finished.outcome) == ("entitled", SimulatedOutcome.FINISHED)
    assert (result.reclaims, result.kills) == (1, 0)
    snapshot = policy.seen[2]
    assert [job.id for job in snapshot.jobs] == ["urgent", "borrower", "older"]
    assert (snapshot.jobs[1].memory, snapshot.jobs[1].memory_limit) == (4 * GIB, 10 * GIB)


def test_a_job_that_is_evicted_again_and_again_gets_its_memory_guaranteed():
    borrower = burst("borrower", 2, 10, [8])
    entitled = task_of(application("entitled", memory=[9], duration=500), "entitled")
    result = simulate([entitled, borrower], gpus(), create("fifo"))
    assert history(result, "borrower") == [
        (SimulatedOutcome.RECLAIMED, 2),
        (SimulatedOutcome.RECLAIMED, 2),
        (SimulatedOutcome.RECLAIMED, 2),
        (SimulatedOutcome.FINISHED, pytest.approx(8.8)),
    ]
    assert result.attempts[-1].start == pytest.approx(500)


def test_above_its_ceiling_a_job_runs_out_of_memory_and_the_ceiling_grows_first():
    task = burst("greedy", 2, 4, [1, 11])
    result = simulate([task], gpus(memory=12), create("fifo"))
    assert history(result, "greedy") == [(SimulatedOutcome.OUT_OF_MEMORY, 2)] * 3 + [
        (SimulatedOutcome.FINISHED, 2)
    ]


def test_a_workload_file_gives_jobs_a_ceiling():
    text = """
jobs:
  - {application: LAMMPS, memory: 4000, memory_limit: 9000}
"""
    (task,) = parse_workload(text).tasks
    assert (task.job.memory >> 20, task.job.memory_limit >> 20) == (4000, 9000)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("memory: 4000, memory_limit: 3000", "memory_limit: expected at least `memory`, 4000"),
        ("memory_limit: 3000", "expected the guaranteed `memory` of the job, too"),
    ],
)
def test_a_ceiling_below_or_without_a_guarantee_is_refused(job, told):
    with pytest.raises(InputError, match=told):
        parse_workload(f"jobs:\n  - {{application: LAMMPS, {job}}}\n")
