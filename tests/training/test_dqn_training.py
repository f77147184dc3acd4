"""How the network learns: returns, replay, the file it is written to, stopping and going on."""

from statistics import fmean, pvariance

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from partita_policies.dqn.configuration import Training
from partita_policies.dqn.observation import CANDIDATE_FEATURES, STATE_FEATURES, Observation
from partita_policies.dqn.served import ScoringModel
from partita_research.training.checkpoint import CheckpointError, load, save
from partita_research.training.export import export
from partita_research.training.learning import DQNLearner, tensors
from partita_research.training.learning_environment import (
    DecisionPoint,
    Scenario,
    Trajectory,
    run,
    transitions,
)
from partita_research.training.network import SeparateScorer, SharedScorer, build
from partita_research.training.replay_buffer import DecisionBatch, ReplayBuffer, padded
from partita_research.training.scenarios import random_scenario
from partita_research.training.trainer import Trainer, greedy

TINY = Training(
    iterations=2, episodes=2, updates=3, batch=8, hidden=8, window=3, validation=1, validate_every=1
)


def short(number: int) -> Scenario:
    scenario = random_scenario(number)
    return scenario._replace(tasks=scenario.tasks[:5])


def an_ask(
    random: np.random.Generator, legal: int, unit: float = 1.0, area: float = 0.0
) -> DecisionPoint:
    return DecisionPoint(
        random.normal(size=STATE_FEATURES).astype(np.float32),
        random.normal(size=(legal, CANDIDATE_FEATURES)).astype(np.float32),
        np.arange(legal),
        area,
        unit,
    )


def a_trajectory(count: int = 7) -> Trajectory:
    random = np.random.default_rng(5)
    decisions = [
        an_ask(random, 3, unit=float(random.uniform(1, 4)), area=float(random.uniform(0, 50)))
        for _ in range(count)
    ]
    times = np.cumsum(random.uniform(0, 9, size=count + 1)).tolist()
    return Trajectory(5.0, decisions, [0] * count, times, [0.0] * (count + 1))


@pytest.mark.parametrize("steps", [1, 3, 99])
def test_returns_over_several_steps_are_those_recomputed_apart(steps: int) -> None:
    """By hand: from the times and bounds themselves, without the running sums of the code."""
    gamma, trajectories = 0.9, a_trajectory()
    bounds = [decision.bound for decision in trajectories.decisions] + [0.0]
    for start, one in enumerate(transitions(trajectories, steps, gamma)):
        stop = min(start + steps, len(trajectories.decisions))
        expected = 0.0
        for at in range(start, stop):
            passed = trajectories.times[at + 1] - trajectories.times[at]
            waited = (trajectories.times[at] - trajectories.times[start]) / trajectories.mean
            expected += gamma**waited * (bounds[at] - bounds[at + 1] - passed)
        unit = trajectories.decisions[start].unit
        assert one.reward == pytest.approx(expected / unit, rel=1e-4)
        if stop < len(trajectories.decisions):
            length = (trajectories.times[stop] - trajectories.times[start]) / trajectories.mean
            rescaled = trajectories.decisions[stop].unit / unit
            assert one.discount == pytest.approx(gamma**length * rescaled, rel=1e-4)
            assert one.following is trajectories.decisions[stop]
        else:
            assert (one.discount, one.following) == (0.0, None)


def test_without_discount_the_rewards_are_a_constant_less_the_makespan() -> None:
    scenarios = [random_scenario(number) for number in range(2)]
    first = run(scenarios, lambda observation: observation.legal.argmax(axis=1), window=4)
    other = run(
        scenarios,
        lambda observation: np.where(observation.legal, observation.dual_value, -1).argmax(axis=1),
        window=4,
    )
    for one, two in zip(first, other, strict=True):
        assert one.work == pytest.approx(two.work)
        constants = [float(life.rewards().sum()) + life.makespan for life in (one, two)]
        assert constants[0] == pytest.approx(constants[1], rel=1e-3)


def test_to_wait_for_ever_earns_no_more_than_to_take_turns() -> None:
    """Without the mask nothing else keeps an idle GPU from it."""
    scenario = short(1)
    (idle,) = run(
        [scenario], lambda observation: np.zeros(len(observation.legal), int), window=3, mask=False
    )
    whole = sum(task.truth.duration for task in scenario.tasks)
    assert idle.makespan == idle.work == pytest.approx(whole)
    assert idle.rewards().sum() == pytest.approx(idle.decisions[0].bound - whole, rel=1e-4)


@pytest.mark.parametrize("spread", [False, True])
def test_a_replay_comes_back_as_it_was(*, spread: bool) -> None:
    replay, other = ReplayBuffer(5, spread=spread), ReplayBuffer(5, spread=spread)
    replay.add(transitions(a_trajectory(), 2, 0.9))
    assert len(replay) == 5
    other.load(replay.dump())
    for replayed in (replay, other):
        replayed.add(transitions(a_trajectory(2), 1, 0.9))
    one, two = (some.draw(9, np.random.default_rng(1)) for some in (replay, other))
    for mine, yours in zip((*one.decisions, *one[1:4]), (*two.decisions, *two[1:4]), strict=True):
        assert_allclose(mine, yours, rtol=1e-6)


def test_asks_keep_their_places_where_that_matters() -> None:
    decision = an_ask(np.random.default_rng(1), 2)._replace(places=np.array([1, 4]))
    spread, close = padded([decision, None], spread=True), padded([decision, None], spread=False)
    assert spread.legal.tolist() == [[0, 1, 0, 0, 1], [0] * 5]
    assert close.legal.tolist() == [[1, 1], [0, 0]]
    assert_allclose(spread.candidates[0, 4], close.candidates[0, 1])


@pytest.mark.parametrize("dueling", [False, True])
def test_the_served_network_answers_as_torch_does(tmp_path, *, dueling: bool) -> None:
    random = np.random.default_rng(0)
    training = Training(dueling=dueling, seed=3)
    network = build(training)
    assert isinstance(network, SharedScorer)
    known = np.zeros((2, STATE_FEATURES))
    export(network, training, known, tmp_path / "model.onnx")
    model = ScoringModel(tmp_path / "model.onnx")
    assert model.training == training.model_dump()
    for gpus, combinations in ((1, 1), (3, 64), (50, 8)):
        legal = random.random((gpus, combinations)) < 0.5
        states = random.normal(size=(gpus, STATE_FEATURES)).astype(np.float32)
        shape = (gpus, combinations, CANDIDATE_FEATURES)
        candidates = random.normal(size=shape).astype(np.float32)
        none = np.zeros(gpus, np.float32)
        observation = Observation(states, candidates, legal, none, none, none)
        with torch.no_grad():
            given = tensors(DecisionBatch(states, candidates, legal.astype(np.float32)))
            expected = network.preference(*given).numpy()
        assert_allclose(model.estimates(observation)[legal], expected[legal], atol=1e-5)


def test_the_network_does_not_care_in_which_order_combinations_come() -> None:
    random = np.random.default_rng(2)
    decisions = padded([an_ask(random, 6), an_ask(random, 6)], spread=False)
    order = random.permutation(6)
    mixed = DecisionBatch(decisions.states, decisions.candidates[:, order], decisions.legal)
    network = build(Training())
    with torch.no_grad():
        assert_allclose(
            network(*tensors(mixed)), network(*tensors(decisions))[:, order], rtol=1e-4, atol=1e-5
        )


@pytest.mark.timeout(300)  # seconds of arithmetic, and minutes where others compute beside it
@pytest.mark.parametrize(
    ("shared", "dueling", "double"), [(True, True, True), (False, False, False)]
)
def test_a_trivial_task_is_learnt(*, shared: bool, dueling: bool, double: bool) -> None:
    """Of two combinations the one that is marked earns 1 and the other nothing."""
    random = np.random.default_rng(1)
    training = Training(
        hidden=16,
        batch=16,
        updates=40,
        learning_rate=5e-3,
        window=1,
        shared=shared,
        dueling=dueling,
        double=double,
    )
    learner = DQNLearner(build(training), training, "cpu", random)
    lives = []
    for _ in range(60):
        decision = an_ask(random, 2)
        decision.candidates[:] *= 0.1
        decision.state[:] *= 0.1
        marked, action = random.integers(2, size=2).tolist()
        decision.candidates[marked, 0] = 3
        late = 0.0 if action == marked else 1.0
        lives.append(Trajectory(1.0, [decision], [action], [0.0, late], [0.0, 0.0]))
    losses = [learner.learn(lives, iteration) for iteration in range(3)]
    assert losses[-1] < losses[0]
    fresh = [life.decisions[0] for life in lives]
    decisions = padded(fresh, spread=not shared)
    wanted = decisions.candidates[..., 0].argmax(axis=1)
    with torch.no_grad():
        chosen = learner.network(*tensors(decisions)).argmax(dim=1).numpy()
    assert (chosen == wanted).mean() > 0.9


def test_the_same_seed_learns_the_same() -> None:
    trajectories = []
    for _ in range(2):
        trainer = Trainer(TINY, short)
        trajectories.append([list(trainer.iterations())[-1].curve, trainer.network().state_dict()])
    assert trajectories[0][0] == trajectories[1][0]
    assert all(
        torch.equal(part, trajectories[1][1][name]) for name, part in trajectories[0][1].items()
    )


@pytest.mark.parametrize("algorithm", ["dqn", "study"])
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path, algorithm) -> None:
    training = TINY.model_copy(update={"algorithm": algorithm})
    whole = Trainer(training, short)
    through = list(whole.iterations())[-1]
    stopped = Trainer(training, short)
    next(stopped.iterations())
    save(stopped, tmp_path / "kept.safetensors")
    resumed = Trainer(training, short)
    load(resumed, tmp_path / "kept.safetensors")
    assert resumed.progress.iteration == 1
    assert list(resumed.iterations())[-1].curve == through.curve
    for name, part in whole.learner.network.state_dict().items():
        assert torch.equal(part, resumed.learner.network.state_dict()[name])
    assert_allclose(resumed.known, whole.known)


def test_a_checkpoint_of_another_training_is_refused(tmp_path) -> None:
    path = tmp_path / "kept.safetensors"
    save(Trainer(TINY, short), path)
    with pytest.raises(CheckpointError, match="other settings"):
        load(Trainer(TINY.model_copy(update={"seed": 1}), short), path)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"kept\.safetensors.*expected one that"):
        load(Trainer(TINY, short), path)


def test_the_actions_of_a_network_are_the_same_each_time() -> None:
    scenarios = [short(-1), short(-2)]
    network = build(TINY)
    first, again = (run(scenarios, greedy(network), window=3) for _ in range(2))
    assert [one.actions for one in first] == [one.actions for one in again]
    assert [one.makespan for one in first] == [one.makespan for one in again]


def test_separate_outputs_are_as_many_as_combinations() -> None:
    network = build(Training(shared=False, window=3))
    assert isinstance(network, SeparateScorer)
    random = np.random.default_rng(0)
    decisions = padded([an_ask(random, 4)], spread=True)
    assert network(*tensors(decisions)).shape == (1, 4)


def test_validation_workloads_are_none_of_those_learnt_from() -> None:
    learnt = {tuple(task.truth.duration for task in short(n).tasks) for n in range(20)}
    held_out = {tuple(task.truth.duration for task in short(-1 - n).tasks) for n in range(20)}
    assert len(learnt) == len(held_out) == 20
    assert not learnt & held_out


def test_workloads_are_of_many_sorts() -> None:
    """Each leans some way: their means differ by more than those of applications drawn alike."""
    workloads = [
        list({task.truth.name: task.truth for task in random_scenario(n).tasks}.values())
        for n in range(60)
    ]
    for measure in (
        lambda one: fmean(step.core for step in one.steps),
        lambda one: np.log(one.duration),
    ):
        taken = [[float(measure(one)) for one in pool] for pool in workloads]
        within = fmean(pvariance(pool) for pool in taken)
        assert pvariance([fmean(pool) for pool in taken]) > 0.2 * within
