"""Training of the policy dqn: a deep Q-network with Monte Carlo targets.

The model is that of J. Oh, "A Job Placement Using Reinforcement Learning in GPU Virtualization
Environment" (2019), section IV: the state is images of what a GPU and the waiting jobs take of its
four resources over time; an action starts a combination of waiting jobs, whose images are added up,
or waits; what is not looked at is a backlog. The value of an action is minus what is spent after
it until all jobs have ended, in seconds of simulated time (a semi-Markov decision process, without
a discount), as a multiple of the mean seconds of a job.

Learning follows V. Mnih et al., "Human-level control through deep reinforcement learning", Nature
518 (2015): decisions of an exploring policy go to a replay buffer, and a target network, a copy
that is renewed seldom, says what comes after an action. In two points it goes another way:

- The target of an action is not the reward and the target network's largest value of the next
  state, but the least cost of a few simulations to the end, in which the target network goes on:
  greedily once, then with choices sampled by their scores. One decision of thirty changes the cost
  by little, and values that are learnt from values have a larger error than that.
- Several actions of one decision are tried, with the same jobs and arrivals after each (common
  random numbers; H. Mao et al., "Variance Reduction for Reinforcement Learning in Input-Driven
  Environments", ICLR 2019). So the network need not learn the value of the state, which is most of
  the value and does not matter for the choice: it learns the advantages (the second stream of Z.
  Wang et al., "Dueling Network Architectures for Deep Reinforcement Learning", ICML 2016), in
  standard deviations of those of one decision: they differ a hundredfold between workloads.

The value starts as the gain in dual value, by which `planner` proposes choices, times a factor that
is learnt, too. So the first policy is a good one.

With `update: study` the same data are used as equation 2 of the study says: the logarithm of the
probability of the action that was chosen moves by q - v, where q is its cost and v the mean cost of
those tried.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from partita_policies.dqn.policy import WEIGHTS
from partita_policies.planner.policy import GOALS, Goal, PlannerParameters, settings_of
from partita_policies.planner.structures import HIDDEN, INPUTS
from partita_policies.types import Objective
from partita_research.training.workload import ChoiceRecorder, Episode, TrainingWorkload, Trials

__all__ = ["Progress", "QNetwork", "Training", "train"]

_PLAIN = PlannerParameters(work=0)
_LEAST = 1e-2
"""Standard deviation of the values of a decision, in mean seconds of a job, below which its choices
are alike."""

Draw = Callable[[int, Objective], TrainingWorkload]


class Training(BaseModel):
    """Settings of a training, written into the model.

    All were chosen on workloads that no report uses.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    update: Literal["q", "study"] = "q"
    iterations: int = Field(default=60, ge=1)
    workloads: int = Field(default=20, ge=1)
    """In an iteration."""
    tried: int = Field(default=240, ge=1)
    """Decisions in an iteration of which choices are tried, about."""
    runs: int = Field(default=4, ge=1)
    """Simulations to the end after a choice that is tried; the best counts."""
    buffer: int = Field(default=60, ge=1)
    """Iterations whose decisions are replayed."""
    target: int = Field(default=10, ge=1)
    """Iterations after which the target network is renewed."""
    steps: int = Field(default=80, ge=1)
    """Gradient steps in an iteration."""
    batch: int = Field(default=128, ge=1)
    """Decisions in a gradient step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """At first; it falls linearly to a tenth."""
    clip: float = Field(default=1.0, gt=0)
    """Bound of the norm of the gradient."""
    sharpness: float = Field(default=20.0, gt=0)
    """Factor of the scores before the softmax by which choices are explored: a gain of 5 % of a GPU
    more than another is chosen e times as often."""


class Progress(NamedTuple):
    """The state of a training after an iteration."""

    iteration: int
    weights: NDArray[np.float32]
    gain: float
    """Mean cost of the sampled runs, as a share of that of the prior's best choices, less 1."""
    correlation: float
    """Of the values of the choices with what they cost, within decisions, before they are learnt
    from."""


class QNetwork(torch.nn.Module):
    """The network of `native/decide.c`, which answers 0 before the training, and a factor."""

    def __init__(self) -> None:
        super().__init__()
        last = torch.nn.Linear(HIDDEN, 1)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(), last,
        )  # fmt: skip
        self.scale = torch.nn.Parameter(torch.zeros(()))

    def scores(self, inputs: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
        """Return the scores of choices, by which they are compared."""
        scores: torch.Tensor = gains + self.layers(inputs).squeeze(-1)
        return scores

    def weights(self) -> NDArray[np.float32]:
        """Return the weights in the order of the native library."""
        parts = [part.detach().numpy() for part in self.layers.parameters()]
        weights: NDArray[np.float32] = np.concatenate([part.T.ravel() for part in parts])
        assert len(weights) == WEIGHTS  # noqa: S101 - the sizes are those of decide.h
        return weights


class Tried(NamedTuple):
    """Decisions with the choices that were tried, a row each; rows are filled up with NaN costs."""

    inputs: torch.Tensor
    """(decisions, choices, INPUTS)"""
    gains: torch.Tensor
    values: torch.Tensor
    """(decisions, choices): minus the cost, in mean seconds of a job; NaN: no choice."""
    chosen: torch.Tensor
    """Place of the choice that was made, for each decision."""


def train(training: Training, objective: Objective, draw: Draw) -> Iterator[Progress]:
    """Train the network of an objective, and yield its state after each iteration.

    Parameters
    ----------
    draw
        Returns the workload of a number; equal numbers give equal workloads.
    """
    torch.manual_seed(training.seed)
    torch.use_deterministic_algorithms(mode=True)
    torch.set_num_threads(1)  # a second thread costs more than it gains with so small a network
    goal, recorder = GOALS[objective], ChoiceRecorder()
    prior = settings_of(goal, None, _PLAIN)
    target = settings_of(goal, None, _PLAIN, sharpness=training.sharpness)
    network, replay = QNetwork(), list[Tried]()
    optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    for iteration in range(training.iterations):
        left = 1 - 0.9 * iteration / training.iterations
        optimizer.param_groups[0]["lr"] = training.learning_rate * left
        explore = settings_of(goal, network.weights(), _PLAIN, sharpness=training.sharpness)
        if iteration and iteration % training.target == 0:
            target = explore
        found, costs = list[Tried](), []
        for number in range(training.workloads):
            seed = (training.seed * training.iterations + iteration) * training.workloads + number
            workload = draw(seed, objective)
            before = workload.play(prior)
            chance = min(training.tried / training.workloads / workload.jobs, 1.0)
            trials = Trials(target, chance, runs=training.runs)
            episode = workload.play(explore, seed + 1, recorder, trials)
            found.append(tried_in(episode))
            costs.append(cost_of(episode, goal) / cost_of(before, goal) - 1)
        fresh = joined(found)
        correlation = correlation_of(network, fresh)
        replay = [*replay, fresh][-training.buffer :]
        update(network, optimizer, joined(replay), training)
        yield Progress(iteration + 1, network.weights(), float(np.mean(costs)), correlation)


def cost_of(episode: Episode, goal: Goal) -> float:
    """Return what an objective counts of a run."""
    return episode.total if goal.completion else episode.makespan


def tried_in(episode: Episode) -> Tried:
    """Return the decisions of which at least two choices were tried."""
    rows = [
        (there + first, chosen, unit)
        for first, end, chosen, unit in zip(
            episode.first[:-1], episode.first[1:], episode.chosen, episode.units, strict=True
        )
        if len(there := np.flatnonzero(~np.isnan(episode.costs[first:end]))) > 1
    ]
    most = max((len(there) for there, _, _ in rows), default=2)
    inputs = np.zeros((len(rows), most, INPUTS), np.float32)
    gains = np.zeros((len(rows), most), np.float32)
    values = np.full((len(rows), most), np.nan, np.float32)
    chosen = np.zeros(len(rows), np.int64)
    for row, (there, made, unit) in enumerate(rows):
        inputs[row, : len(there)] = episode.inputs[there]
        gains[row, : len(there)] = episode.gains[there]
        values[row, : len(there)] = -episode.costs[there] / unit
        chosen[row] = int(np.flatnonzero(there == made)[0])
    return Tried(*(torch.from_numpy(part) for part in (inputs, gains, values, chosen)))


def joined(parts: list[Tried]) -> Tried:
    """Return the decisions of several records as one."""
    most = max(part.gains.shape[1] for part in parts)

    def padded(part: torch.Tensor, value: float) -> torch.Tensor:
        last = [0, 0] * (part.dim() - 2)
        return torch.nn.functional.pad(part, [*last, 0, most - part.shape[1]], value=value)

    return Tried(
        torch.cat([padded(part.inputs, 0.0) for part in parts]),
        torch.cat([padded(part.gains, 0.0) for part in parts]),
        torch.cat([padded(part.values, float("nan")) for part in parts]),
        torch.cat([part.chosen for part in parts]),
    )


def advantages(values: torch.Tensor) -> torch.Tensor:
    """Return by how much each choice is better than the mean of its decision; 0: not tried."""
    return (values - values.nanmean(1, keepdim=True)).nan_to_num(0.0)


def correlation_of(network: QNetwork, tried: Tried) -> float:
    """Return the correlation of scores with values within decisions."""
    with torch.no_grad():
        scores = network.scores(tried.inputs, tried.gains)
    a = advantages(torch.where(tried.values.isnan(), torch.nan, scores)).ravel()
    b = advantages(tried.values).ravel()
    return float((a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt().clamp(min=1e-9))


def update(
    network: QNetwork, optimizer: torch.optim.Optimizer, replay: Tried, training: Training
) -> None:
    """Make some gradient steps on decisions of the replay buffer."""
    there = ~replay.values.isnan()
    target = advantages(replay.values)
    spread = target.square().sum(1).div(there.sum(1)).sqrt()
    target = target / spread.clamp(min=_LEAST)[:, None]
    telling = torch.nonzero(spread > _LEAST).squeeze(1)
    if not len(telling):
        return
    for _ in range(training.steps):
        some = telling[torch.randint(len(telling), (training.batch,))]
        tried, better = there[some], target[some]
        scores = network.scores(replay.inputs[some], replay.gains[some])
        if training.update == "q":
            values = network.scale.exp() * advantages(torch.where(tried, scores, torch.nan))
            loss = torch.nn.functional.smooth_l1_loss(values[tried], better[tried])
        else:
            logits = (training.sharpness * scores).masked_fill(~tried, -torch.inf)
            place = replay.chosen[some][:, None]
            likely = torch.log_softmax(logits, 1).gather(1, place)
            loss = -(likely * better.gather(1, place)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), training.clip)
        optimizer.step()
