"""No policy is better than the bound on the makespan; where the optimum is plain, it is met."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.policies.bound import TooLargeError, mixture_bound
from partita_policies import GPU, Step, create
from partita_research.simulator import Application, simulate
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import study_workload
from simulator.scenes import GIB, application, gpus, queue

CARD = GPU("gpu-0", "node", 12 * GIB, 16, pcie_bandwidth=32 * 10**9)
SLACK = 1 + 1e-6


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 2))
def test_no_policy_beats_the_best_mixture(seed, jobs, count):
    tasks = random_tasks(seed, jobs, CARD, applications=4)
    cards = [replace(CARD, id=f"gpu-{number}") for number in range(count)]
    bound = mixture_bound(tasks, cards)
    for policy in (create("fifo"), create("tetris"), create("sjf", {"exclusive": True})):
        result = simulate(tasks, cards, policy)
        assert len(result.finished) == len(tasks)
        assert result.makespan * SLACK >= bound


def test_on_the_memory_heavy_workload_nobody_can_share_so_one_after_another_is_optimal():
    workload = study_workload("memory-heavy")
    assert mixture_bound(workload.tasks, workload.gpus) == pytest.approx(3330)


def test_each_light_job_can_run_beside_a_heavy_one_and_the_heavy_ones_have_no_room_together():
    heavy = Application("heavy", 100, (Step(gpu=60, memory=6 * GIB, core=36),), cache=0)
    light = Application("light", 80, (Step(gpu=40, memory=4 * GIB, core=24),), cache=0)
    assert mixture_bound(queue(heavy, heavy, light, light), gpus()) == pytest.approx(200)


def test_what_has_too_many_sets_is_refused():
    many = queue(*[application(f"app-{n}", memory=[0.5]) for n in range(30)])
    with pytest.raises(TooLargeError, match="sets of jobs"):
        mixture_bound(many, gpus())
