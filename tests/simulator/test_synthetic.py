"""Random applications and workloads, and what makes known ones uncertain."""

from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_policies import GPU, create
from partita_policies.interference import TYPICAL_CACHE
from partita_policies.simulator.tasks import allocation_for
from partita_research.simulator import simulate, task_of
from partita_research.simulator.jitter import STEADY_SHARE, jitter
from partita_research.simulator.synthetic import random_application, random_tasks
from simulator.scenes import GIB, application, queue

CARD = GPU("gpu-0", "node", 12 * GIB, 16, pcie_bandwidth=32 * 10**9)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_random_application_fits_the_gpu_it_was_drawn_for(seed):
    drawn = random_application(Random(seed), "drawn", CARD)
    assert 0 < drawn.peak_memory <= CARD.memory
    assert all(step.gpu <= 100 and step.core <= step.gpu for step in drawn.steps)
    assert all(step.pcie <= CARD.pcie_bandwidth for step in drawn.steps)


def test_random_applications_are_of_all_kinds():
    drawn = [random_application(Random(seed), "drawn", CARD) for seed in range(800)]
    assert mean(some.cache for some in drawn) == pytest.approx(TYPICAL_CACHE, abs=0.02)
    assert min(some.duration for some in drawn) < 30
    assert max(some.duration for some in drawn) > 800
    late = [some for some in drawn if some.steps[4].memory == 0]
    steady = [some for some in drawn if len(set(some.steps[3:])) == 1]
    rising = [some for some in drawn if len(set(some.steps)) > 5]
    assert min(len(late), len(steady), len(rising)) > 40


def test_arrivals_come_at_once_or_over_time():
    assert {task.job.submitted for task in random_tasks(3, 20, CARD)} == {0.0}
    times = [task.job.submitted for task in random_tasks(3, 500, CARD, interval=10)]
    assert times == sorted(times)
    assert times[-1] / 499 == pytest.approx(10, rel=0.15)


def test_jitter_tells_policies_one_wrong_profile_an_application_and_varies_the_runs():
    exact = queue(*[application("one", memory=[1, 2])] * 5, *[application("two")] * 5)
    changed = jitter(exact, seed=1)
    by_name = {}
    for task in changed:
        by_name.setdefault(task.job.application, []).append(task)
    for name, tasks in by_name.items():
        assert {id(task.job.profile) for task in tasks} == {id(tasks[0].job.profile)}, name
        assert len({task.truth for task in tasks}) == 5
        for task in tasks:
            assert abs(task.job.profile.duration / 100 - 1) <= 0.2
            assert abs(task.truth.duration / 100 - 1) <= 0.2 * STEADY_SHARE
            assert task.job.profile.steps != task.truth.steps
            assert task.job.memory == allocation_for(task.job.profile)
    assert [task.job.id for task in changed] != [task.job.id for task in exact]
    assert sorted(task.job.id for task in changed) == [task.job.id for task in exact]


def test_jitter_keeps_stated_allocations_arrival_times_and_the_largest_gpu():
    exact = [
        task_of(application(memory=[11.9]), f"job-{n}", memory=12 * GIB, submitted=n)
        for n in range(6)
    ]
    changed = jitter(exact, seed=2, largest=12 * GIB)
    assert [task.job.submitted for task in changed] == [0, 1, 2, 3, 4, 5]
    assert {task.job.memory for task in changed} == {12 * GIB}
    assert max(task.truth.peak_memory for task in changed) == 12 * GIB


def test_no_noise_changes_the_order_alone():
    exact = queue(*[application(f"app-{n}") for n in range(6)])
    changed = jitter(exact, seed=3, noise=0.0)
    assert sorted(changed, key=lambda task: task.job.id) == exact
    for noise in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="noise"):
            jitter(exact, seed=3, noise=noise)


def test_runs_are_killed_where_memory_varies_by_more_than_the_margin():
    def kills(**noise):
        tasks = random_tasks(1, 60, CARD, **noise)
        return simulate(tasks, [CARD], create("fifo")).kills

    assert kills() == kills(memory_noise=0.04) == 0
    assert kills(memory_noise=0.2) > 5
    with pytest.raises(ValueError, match="memory_noise: 1"):
        random_tasks(1, 60, CARD, memory_noise=1)
