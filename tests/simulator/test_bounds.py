"""No policy is better than the bounds on the makespan; where the optimum is plain, they meet it."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.policies.bounds import bounds, finishable
from bench.policies.optimum import TooLargeError, mixture_bound, small_optimum
from partita_policies import GPU, Sharing, Step, create
from partita_research.simulator import Application, simulate, task_of
from partita_research.simulator.jitter import jitter
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS, study_workload
from simulator.scenes import GIB, application, gpus, queue

CARD = GPU("gpu-0", "node", 12 * GIB, 16, pcie_bandwidth=32 * 10**9)
POLICIES = (
    create("fifo"),
    create("sjf"),
    create("sjf", {"exclusive": True}),
    create("tetris"),
    create("tetris", {"usage": "peak"}),
)
SLACK = 1 + 1e-6


def cards(count, product=""):
    return [replace(CARD, id=f"{product}{n}", product=product) for n in range(count)]


def makespans(tasks, on, **settings):
    for policy in POLICIES:
        result = simulate(tasks, on, policy, **settings)
        assert len(result.finished) == len(tasks)
        yield result.makespan * SLACK


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 25),
    st.integers(1, 3),
    st.sampled_from([0.0, 40.0]),
    st.sampled_from(Sharing),
)
def test_no_policy_beats_chain_and_area(seed, jobs, count, interval, sharing):
    tasks = random_tasks(seed, jobs, CARD, interval=interval)
    on = [*cards(count), *cards(1, "fast")]
    bound = bounds(tasks, on, sharing=sharing, speeds={"fast": 2.0}).best
    for makespan in makespans(tasks, on, sharing=sharing, speeds={"fast": 2.0}):
        assert makespan >= bound


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 2))
def test_no_policy_beats_the_best_mixture(seed, jobs, count):
    tasks = random_tasks(seed, jobs, CARD, applications=4)
    bound = mixture_bound(tasks, cards(count))
    for makespan in makespans(tasks, cards(count)):
        assert makespan >= bound


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6))
def test_no_policy_beats_the_optimum_of_a_few_steady_jobs(seed):
    random = Random(seed)
    steady = []
    for task in random_tasks(seed, 4, CARD, noise=0.0):
        step = random.choice(task.truth.steps)
        steady.append(task_of(replace(task.truth, steps=(step,)), task.job.id))
    bound, found = small_optimum(steady, CARD, seconds=3)
    assert bound <= found + 0.2
    for makespan in makespans(steady, cards(1)):
        assert makespan >= bound


@pytest.mark.parametrize("name", STUDY_WORKLOADS)
def test_the_study_s_workloads_are_bounded_tightly(name):
    workload = study_workload(name)
    tasks = jitter(workload.tasks, 1, largest=CARD.memory)
    bound = mixture_bound(tasks, workload.gpus)
    simple = bounds(tasks, workload.gpus)
    assert bound >= simple.area["sm"] * 0.97  # alike jobs take the least that any of them takes
    for makespan in makespans(tasks, workload.gpus):
        assert makespan >= max(bound, simple.best)


def test_on_the_memory_heavy_workload_nobody_can_share_so_one_after_another_is_optimal():
    workload = study_workload("memory-heavy")
    assert mixture_bound(workload.tasks, workload.gpus) == pytest.approx(3330)


def test_jobs_that_must_be_alone_take_their_durations_over_the_speeds():
    tasks = queue(*[application(duration=60)] * 6)
    on = [*cards(1), *cards(1, "fast")]
    bound = bounds(tasks, on, sharing=Sharing.EXCLUSIVE, speeds={"fast": 2.0})
    assert (bound.best, bound.tightest) == (pytest.approx(120), "whole GPUs")


def test_a_job_that_must_be_alone_takes_all_of_its_gpu():
    full = Application("full", 100, (Step(gpu=100, memory=GIB, core=60),), cache=0)
    shy = queue(application("shy", gpu=1))
    shy = [replace(task, job=replace(task.job, id="shy", alone=True)) for task in shy]
    assert bounds([*queue(full), *shy], gpus()).area["sm"] == pytest.approx(200)


def test_a_long_or_late_job_bounds_the_makespan():
    tasks = queue(application(duration=10), application("long", duration=500), every=100)
    assert bounds(tasks, gpus(4)).best == pytest.approx(600)
    assert bounds(tasks, gpus(4)).tightest == "chain"


def test_what_arrives_late_can_only_be_done_late():
    full = Application("full", 100, (Step(gpu=100, memory=GIB, core=60),), cache=0)
    tasks = queue(full, full, full, every=200)
    assert bounds(tasks, gpus()).area["sm"] == pytest.approx(500)


def test_full_jobs_take_the_sum_of_their_durations_and_that_is_the_optimum():
    full = Application("full", 100, (Step(gpu=100, memory=GIB, core=60),), cache=0)
    tasks = queue(*[full] * 3)
    assert bounds(tasks, gpus()).best == pytest.approx(300)
    assert mixture_bound(tasks, gpus()) == pytest.approx(300)
    assert small_optimum(tasks, gpus()[0]).bound == pytest.approx(300, abs=0.3)


def test_the_optimum_of_a_few_jobs_is_met_by_the_schedule_that_is_plainly_best():
    """Each light job can run beside a heavy one, and the heavy ones have no room together."""
    heavy = Application("heavy", 100, (Step(gpu=60, memory=6 * GIB, core=36),), cache=0)
    light = Application("light", 80, (Step(gpu=40, memory=4 * GIB, core=24),), cache=0)
    tasks = queue(heavy, heavy, light, light)
    optimum = small_optimum(tasks, gpus()[0])
    assert optimum.bound == pytest.approx(200, abs=0.3)
    assert optimum.found == pytest.approx(200, abs=0.3)
    assert mixture_bound(tasks, gpus()) == pytest.approx(200)


def test_jobs_run_through_their_phases_in_order_and_without_pause():
    """Interrupted, each busy half could run beside an idle one; as they are, they cannot wait."""
    half = Application("half", 100, (Step(0, 5 * GIB), Step(100, 5 * GIB, 60)), cache=0)
    tasks = queue(half, half)
    assert mixture_bound(tasks, gpus()) == pytest.approx(100)
    together = small_optimum(tasks, gpus()[0], phases=2)
    assert together.found == pytest.approx(150, abs=0.3)  # the second starts 50 s later, or now


def test_what_never_finishes_is_left_out():
    tasks = [task_of(application(memory=[13]), "huge"), task_of(application(), "small")]
    assert [task.job.id for task in finishable(tasks, gpus())] == ["small"]
    assert bounds(tasks, gpus()).best == pytest.approx(100)
    assert bounds(tasks[:1], gpus()).best == 0
    assert mixture_bound(tasks[:1], gpus()) == 0


def test_what_the_optimum_cannot_be_found_of_is_refused():
    with pytest.raises(ValueError, match="GPUs: expected some of one kind"):
        mixture_bound(queue(application()), [*gpus(), replace(gpus()[0], memory=GIB * 24)])
    wide = task_of(application(), "wide")
    wide = replace(wide, job=replace(wide.job, gpus=2))
    with pytest.raises(ValueError, match="jobs: expected jobs of one GPU"):
        mixture_bound([wide], gpus(2))
    many = queue(*[application(f"app-{n}", memory=[0.5]) for n in range(30)])
    with pytest.raises(TooLargeError, match="sets of jobs"):
        mixture_bound(many, gpus())
