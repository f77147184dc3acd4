"""What policies are shown of jobs, and how the use of GPUs is measured."""

import pytest

from partita_policies import GPU, Placement, Sharing, Step, create
from partita_policies.interference import TYPICAL_CACHE
from partita_research.simulator import Application, Simulation, Task, simulate, task_of
from partita_research.training.held_out import held_out
from partita_research.training.scenarios import random_scenario
from simulator.scenes import GIB, Scripted

CARDS = [
    GPU(f"gpu-{n}", f"node-{n // 2}", gib * GIB, 4, product=product, pcie_bandwidth=32 * 10**9)
    for n, (gib, product) in enumerate([(12, "old"), (12, "old"), (24, "new")])
]


def test_policies_see_what_was_measured_and_never_the_truth():
    truth = Application("app", 100, (Step(gpu=90, memory=4 * GIB),), cache=0.9)
    told = Application("app", 50, (Step(gpu=10, memory=GIB),)).profile()
    job = task_of(Application("app", 50, told.steps), "job", memory=5 * GIB).job
    task = Task(job, truth)
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


def test_a_training_that_lets_jobs_wait_for_ever_is_not_better():
    starts, waits = create("fifo"), Scripted()
    assert held_out(waits, starts, random_scenario, workloads=2).mean is None
    assert not held_out(waits, waits, random_scenario, workloads=2).clear
    assert held_out(starts, waits, random_scenario, workloads=2).clear
    whole = create("sjf", {"exclusive": True})
    assert not held_out(starts, whole, random_scenario, workloads=2).clear
