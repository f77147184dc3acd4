"""The training of dqn: what it learns, and that it can be repeated."""

from functools import partial
from itertools import islice
from typing import Literal

import numpy as np
import pytest
import torch

from partita_policies.planner.policy import GOALS, Planner, PlannerParameters, settings_of
from partita_policies.simulator.tasks import Application, task_of
from partita_policies.types import GPU, Objective, Step
from partita_research.training.deep_q import (
    Progress,
    QNetwork,
    Training,
    advantages,
    cost_of,
    joined,
    train,
    tried_in,
)
from partita_research.training.held_out import Improvement, held_out
from partita_research.training.scenarios import random_scenario, training_workload
from partita_research.training.workload import ChoiceRecorder, TrainingWorkload, Trials

GIB = 1 << 30
SMALL = Training(iterations=2, workloads=2, tried=8, steps=3)
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
    network, recorder = QNetwork(), ChoiceRecorder()
    torch.nn.init.normal_(network.layers[-1].weight)
    weights = network.weights()
    episode = DRAW(5, objective).play(settings_of(GOALS[objective], weights, PLAIN), 0, recorder)
    with torch.no_grad():
        inputs, gains = torch.from_numpy(episode.inputs), torch.from_numpy(episode.gains)
        scores = network.scores(inputs, gains).numpy()
    for first, end, chosen in zip(
        episode.first[:-1], episode.first[1:], episode.chosen, strict=True
    ):
        assert scores[chosen] == pytest.approx(scores[first:end].max(), abs=1e-4)


@pytest.mark.parametrize("objective", GOALS)
def test_a_trial_costs_what_the_run_costs_that_goes_on_like_it(objective: Objective) -> None:
    """If the run itself goes on greedily, the cost of its choices is that of its rest."""
    goal = GOALS[objective]
    settings = settings_of(goal, None, PLAIN, sharpness=1e6)
    workload, recorder = a_workload(), ChoiceRecorder()
    episode = workload.play(settings, 1, recorder, Trials(settings, 1.0))
    first, best = episode.costs[episode.chosen[0]], np.nanmin(episode.costs[: episode.first[1]])
    assert first == pytest.approx(cost_of(episode, goal), rel=1e-6)
    assert best <= first
    assert (np.diff(episode.costs[episode.chosen]) <= 0).all()


def test_only_choices_that_were_tried_are_learnt_from() -> None:
    settings = settings_of(GOALS[Objective.COMPLETION], None, PLAIN, sharpness=1.0)
    workload, recorder = a_workload(), ChoiceRecorder()
    tried = tried_in(workload.play(settings, 1, recorder, Trials(settings, 1.0, choices=2)))
    both = joined([tried, tried_in(workload.play(settings, 2, recorder, Trials(settings, 1.0)))])
    assert len(both.chosen) > len(tried.chosen) > 0
    assert not both.values.gather(1, both.chosen[:, None]).isnan().any()
    assert advantages(both.values).sum(1).abs().max() < 1e-3
    assert (advantages(both.values)[both.values.isnan()] == 0).all()
    assert not tried_in(workload.play(settings, 1, recorder)).chosen.numel()


@pytest.mark.parametrize("update", ["q", "study"])
def test_what_the_prior_does_wrong_is_learnt(update: Literal["q", "study"]) -> None:
    """A prior that sees only the work per second has no reason to start the short jobs first."""
    goal = GOALS[Objective.COMPLETION]._replace(urgency=0.0)
    before = cost_of(a_workload().play(settings_of(goal, None, PLAIN)), goal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GOALS, Objective.COMPLETION, goal)
        training = Training(iterations=20, workloads=2, learning_rate=1e-2, update=update)
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
    assert {len(workload._cluster.gpus) == 1 for workload in drawn} == {True, False}
    assert {bool(np.ptp(workload._arrivals["time"])) for workload in drawn} == {True, False}
    assert len({workload.jobs for workload in drawn}) > 10


def test_validation_workloads_are_none_of_those_learnt_from() -> None:
    learnt, held = random_scenario(1), random_scenario(-1)
    assert [task.truth for task in learnt.tasks] != [task.truth for task in held.tasks]
    assert [task.job for task in held.tasks] == [task.job for task in random_scenario(-1).tasks]


def test_the_prior_is_no_better_than_itself() -> None:
    prior = Planner(PLAIN)
    assert held_out(prior, prior, random_scenario, workloads=3) == Improvement(0, 0, 3)
