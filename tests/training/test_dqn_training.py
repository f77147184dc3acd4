"""The training of dqn: what it learns, and that it can be repeated."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from partita_policies.planner.policy import GOALS, Planner, PlannerParameters, settings_of
from partita_policies.types import GPU, Objective, Step
from partita_research.simulator.tasks import Application, task_of
from partita_research.training.held_out import held_out
from partita_research.training.policy_gradient import (
    Progress,
    Scorer,
    Training,
    advantages,
    cost_of,
    train,
)
from partita_research.training.scenarios import random_scenario, training_workload
from partita_research.training.workload import ChoiceRecorder, TrainingWorkload

GIB = 1 << 30
SMALL = Training(iterations=2, workloads=2, runs=3)
PLAIN = PlannerParameters(work=0)
DRAW = partial(training_workload, random_scenario)


def a_workload(jobs: int = 12) -> TrainingWorkload:
    """Make long and short jobs of which two never fit together."""
    gpu = GPU("gpu-0", "node-0", 12 * GIB, 8, pcie_bandwidth=10**10)
    kinds = [
        Application(f"app-{seconds}", seconds, (Step(90.0, 8 * GIB, 54.0),), 0.3)
        for seconds in (300.0, 20.0)
    ]
    return TrainingWorkload([task_of(kinds[i % 2], f"job-{i}") for i in range(jobs)], [gpu])


@pytest.mark.parametrize("objective", GOALS)
def test_the_served_network_answers_as_torch_does(objective: Objective) -> None:
    torch.manual_seed(3)
    network, recorder = Scorer(), ChoiceRecorder()
    torch.nn.init.normal_(network[-1].weight)
    weights = network.weights()
    episode = DRAW(5, objective).play(settings_of(GOALS[objective], weights, PLAIN), 0, recorder)
    with torch.no_grad():
        scores = network(torch.from_numpy(episode.features)).squeeze(-1).numpy() + episode.gains
    for first, end, chosen in zip(
        episode.first[:-1], episode.first[1:], episode.chosen, strict=True
    ):
        assert scores[chosen] == pytest.approx(scores[first:end].max(), abs=1e-4)


def test_what_is_recorded_belongs_to_the_run() -> None:
    settings = settings_of(GOALS[Objective.COMPLETION], None, PLAIN, sharpness=1.0)
    workload, recorder = a_workload(), ChoiceRecorder()
    one, same, other = (workload.play(settings, seed, recorder) for seed in (1, 1, 2))
    assert one.total == same.total != other.total
    assert (np.diff(one.times) >= 0).all()
    assert (np.diff(one.totals) >= 0).all()
    assert one.totals[-1] <= one.total
    assert one.makespan == pytest.approx(6 * 320)


def test_advantages_of_runs_of_one_workload_favour_the_cheaper_one() -> None:
    settings = settings_of(GOALS[Objective.COMPLETION], None, PLAIN, sharpness=1.0)
    workload, recorder = a_workload(), ChoiceRecorder()
    episodes = [workload.play(settings, seed, recorder) for seed in range(1, 5)]
    first = [one[0] for one in advantages(episodes, GOALS[Objective.COMPLETION])]
    order = np.argsort([episode.total for episode in episodes])
    assert first[order[0]] > 0 > first[order[-1]]
    assert sum(first) == pytest.approx(0, abs=1e-6)


def test_what_the_prior_does_wrong_is_learnt() -> None:
    """A prior that sees only the work per second has no reason to start the short jobs first."""
    goal = GOALS[Objective.COMPLETION]._replace(urgency=0.0)
    before = cost_of(a_workload().play(settings_of(goal, None, PLAIN)), goal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GOALS, Objective.COMPLETION, goal)
        training = Training(iterations=20, workloads=2, learning_rate=1e-2)
        *_, last = train(training, Objective.COMPLETION, lambda *_: a_workload())
    after = cost_of(a_workload().play(settings_of(goal, last.weights, PLAIN)), goal)
    assert after < before


def test_the_same_seed_learns_the_same() -> None:
    def run(seed: int) -> list[Progress]:
        training = SMALL.model_copy(update={"seed": seed})
        return list(islice(train(training, Objective.MAKESPAN, DRAW), 2))

    one, same, other = run(1), run(1), run(2)
    assert (one[-1].weights == same[-1].weights).all()
    assert [progress.gain for progress in one] == [progress.gain for progress in same]
    assert (one[-1].weights != other[-1].weights).any()


def test_a_gradient_step_may_be_of_one_decision() -> None:
    """The last one of an iteration is of what is left over."""
    training = SMALL.model_copy(update={"batch": 1, "iterations": 1, "workloads": 1})
    (only,) = train(training, Objective.MAKESPAN, lambda *_: a_workload(4))
    assert np.isfinite(only.weights).all()


def test_workloads_are_of_many_sorts() -> None:
    drawn = [DRAW(number, Objective.COMPLETION) for number in range(40)]
    assert {workload.gpus == 1 for workload in drawn} == {True, False}
    assert {workload.arriving for workload in drawn} == {True, False}
    assert len({workload.jobs for workload in drawn}) > 10


def test_validation_workloads_are_none_of_those_learnt_from() -> None:
    learnt, held = random_scenario(1), random_scenario(-1)
    assert [task.truth for task in learnt.tasks] != [task.truth for task in held.tasks]
    assert [task.job for task in held.tasks] == [task.job for task in random_scenario(-1).tasks]


def test_the_prior_is_no_better_than_itself() -> None:
    prior = Planner(PLAIN)
    assert held_out(prior, random_scenario, workloads=3)[:2] == (0, 0)
