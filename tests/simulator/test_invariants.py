"""What holds in every simulation, whatever the policy does."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from partita_policies import GPU, FreeCapacity, Placement, Sharing, Step, create
from partita_policies.interference import TYPICAL_CACHE
from partita_research.simulator import (
    Application,
    Result,
    SimulatedOutcome,
    Simulation,
    simulate,
    task_of,
)
from partita_research.simulator.synthetic import random_application
from simulator.scenes import GIB, Whim

CARDS = [
    GPU(f"gpu-{n}", f"node-{n // 2}", gib * GIB, 4, product=product, pcie_bandwidth=32 * 10**9)
    for n, (gib, product) in enumerate([(12, "old"), (12, "old"), (24, "new")])
]
SPEEDS = {"new": 2.5}
STORED = TypeAdapter(Result)


class Checking(Whim):
    """Checks what it is shown first."""

    def decide(self, snapshot):
        assert_sound(snapshot)
        return super().decide(snapshot)


def assert_sound(snapshot):
    """No GPU is overcommitted, nobody waits and runs at once, and the queue is in order."""
    FreeCapacity(snapshot.gpus)
    running = [running_job.job for gpu in snapshot.gpus for running_job in gpu.running]
    waiting = [job.id for job in snapshot.jobs]
    assert waiting
    assert not set(running) & set(waiting)
    assert len(set(waiting)) == len(waiting)
    for gpu in snapshot.gpus:
        assert sum(running_job.memory for running_job in gpu.running) <= gpu.memory
        assert len(gpu.running) <= gpu.max_jobs
    ages = [(-job.priority, job.submitted) for job in snapshot.jobs]
    assert ages == sorted(ages)
    assert all(job.submitted <= snapshot.time for job in snapshot.jobs)


def workload(seed, count):
    """Jobs whose allocations are right, too small or too large, arriving over time."""
    random = Random(seed)
    tasks = []
    for number in range(count):
        truth = random_application(random, f"app-{number}", CARDS[0])
        tasks.append(
            task_of(
                truth,
                f"job-{number}",
                memory=int(truth.peak_memory * random.choice([0.3, 0.7, 1.0, 1.0, 1.3, 4])),
                submitted=random.choice([0.0, 50.0, random.uniform(0, 500)]),
                priority=random.choice([0, 0, 5]),
            )
        )
    return tasks


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 20), st.sampled_from(Sharing))
def test_whatever_a_policy_does_all_jobs_are_accounted_for_and_no_gpu_is_overfull(
    seed, count, sharing
):
    tasks = workload(seed, count)
    result = simulate(tasks, CARDS, Checking(seed), sharing=sharing, speeds=SPEEDS)
    assert [job.job for job in result.jobs] == [task.job.id for task in tasks]
    for gpu in CARDS:
        readings = result.timeline[gpu.id]
        assert all(reading.memory <= gpu.memory for reading in readings)
        assert all(0 <= reading.busy <= 1 for reading in readings)
        times = [reading.time for reading in readings]
        assert times == sorted(set(times))
        assert not readings or readings[-1][1:] == (0, 0)
    truths = {task.job.id: task.truth for task in tasks}
    for job in result.jobs:
        mine = [attempt for attempt in result.attempts if attempt.job == job.job]
        assert len(mine) == job.attempts
        if job.outcome is SimulatedOutcome.FINISHED:
            assert mine[-1].outcome is SimulatedOutcome.FINISHED
            assert all(attempt.outcome is SimulatedOutcome.OUT_OF_MEMORY for attempt in mine[:-1])
            assert job.slowdown >= 1 - 1e-6
        running = [attempt.memory for attempt in mine]
        assert running == sorted(set(running))
        for attempt in mine:
            speed = SPEEDS["new"] if attempt.gpus == ("gpu-2",) else 1.0
            assert attempt.alone == pytest.approx(truths[job.job].duration / speed)
    assert 0 <= result.gpu_utilisation <= 100 + 1e-9
    assert 0 <= result.memory_utilisation <= 100
    counts = [count for _, count in result.waiting()]
    assert min(counts, default=0) >= 0
    left = sum(job.outcome is SimulatedOutcome.NEVER_PLACED for job in result.jobs)
    assert (counts[-1] if counts else 0) == left


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(Sharing))
def test_work_is_conserved(seed, sharing):
    """Work done never falls but by a kill, grows no faster than the GPUs go, and ends complete."""
    tasks = workload(seed, 10)
    simulation = Simulation(tasks, CARDS, sharing=sharing, speeds=SPEEDS)
    policy, before, then, kills = create("fifo"), 0.0, 0.0, 0
    while (snapshot := simulation.next_decision()) is not None:
        work, killed = simulation.work_done, simulation.result().kills
        if killed == kills:
            assert work >= before - 1e-6
        running = (1 + 1 + SPEEDS["new"]) * max(gpu.max_jobs for gpu in CARDS)
        assert work - before <= (simulation.now - then) * running + 1e-3
        simulation.apply(policy.decide(snapshot))
        before, then, kills = simulation.work_done, simulation.now, killed
    finished = {job.job for job in simulation.result().finished}
    done = sum(task.truth.duration for task in tasks if task.job.id in finished)
    assert simulation.work_done == pytest.approx(done)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_a_result_survives_being_stored(seed):
    result = simulate(workload(seed, 8), CARDS, Checking(seed))
    stored = STORED.validate_json(STORED.dump_json(result))
    assert stored == result
    assert stored.seconds == result.seconds
    assert stored.makespan == result.makespan


def test_policies_see_what_was_measured_and_never_the_truth():
    truth = Application("app", 100, (Step(gpu=90, memory=4 * GIB),), cache=0.9)
    told = Application("app", 50, (Step(gpu=10, memory=GIB),)).profile()
    task = task_of(truth, "job", measured=told, memory=5 * GIB)
    simulation = Simulation([task], CARDS)
    snapshot = simulation.next_decision()
    assert snapshot.jobs == (task.job,)
    assert (task.job.duration, task.job.profile) == (50, told)
    simulation.apply([Placement("job", ("gpu-0",))])
    assert simulation.next_decision() is None
    assert simulation.now == pytest.approx(100)
    assert truth.cache != TYPICAL_CACHE


def test_utilisation_is_the_share_of_time_in_which_kernels_run():
    half = Application("half", 100, (Step(gpu=50, memory=6 * GIB, core=30),), cache=0)
    result = simulate([task_of(half, "one", memory=6 * GIB)], CARDS[:1], create("fifo"))
    assert result.gpu_utilisation == pytest.approx(50)
    assert result.memory_utilisation == pytest.approx(50)
    pair = [task_of(half, name, memory=6 * GIB) for name in ("one", "two")]
    together = simulate(pair, CARDS[:1], create("fifo"))
    assert together.makespan == pytest.approx(100)
    assert together.gpu_utilisation == pytest.approx(75)  # kernels overlap by chance
    assert together.memory_utilisation == pytest.approx(100)
    turns = simulate(pair, CARDS[:1], create("fifo"), sharing=Sharing.TIME_SLICING)
    assert turns.gpu_utilisation == pytest.approx(100)
