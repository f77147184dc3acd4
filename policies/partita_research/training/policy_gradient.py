"""Training of the policy dqn by policy gradient, with common random numbers.

Several runs of one workload differ only in their sampled choices. The advantage of a choice is by
how much less its run costs from then on than the runs of the same workload do on average from the
same time on: an input-dependent baseline (H. Mao et al., "Variance Reduction for Reinforcement
Learning in Input-Driven Environments", ICLR 2019). The network corrects the gain in dual value,
which decides alone before the training, so that it starts as a good policy. There is no value
network, no bootstrapping and no replay buffer.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from partita_policies.dqn.policy import WEIGHTS
from partita_policies.planner.policy import GOALS, Goal, PlannerParameters, settings_of
from partita_policies.planner.structures import FEATURES, HIDDEN
from partita_policies.types import Objective
from partita_research.training.workload import ChoiceRecorder, Episode, TrainingWorkload

__all__ = ["Progress", "Scorer", "Training", "train"]

_PLAIN = PlannerParameters(work=0)

Draw = Callable[[int, Objective], TrainingWorkload]


class Training(BaseModel):
    """Settings of a training, written into the model.

    Learning rate, clipping and entropy bonus start from those of CleanRL's `ppo.py`; they and the
    rest were chosen on workloads that no report uses.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    iterations: int = Field(default=160, ge=1)
    workloads: int = Field(default=12, ge=1)
    """In an iteration."""
    runs: int = Field(default=8, ge=2)
    """Of each workload."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """At first; it falls linearly to a tenth."""
    batch: int = Field(default=512, ge=1)
    """Decisions in a gradient step."""
    clip: float = Field(default=1.0, gt=0)
    """Bound of the norm of the gradient."""
    entropy: float = Field(default=2e-3, ge=0)
    """Weight of the entropy of the choices."""
    sharpness: float = Field(default=20.0, gt=0)
    """Factor of the scores before the softmax: a gain of 5 % of a GPU more than another is chosen
    e times as often."""


class Progress(NamedTuple):
    """The state of a training after an iteration."""

    objective: Objective
    iteration: int
    weights: NDArray[np.float32]
    gain: float
    """Mean cost of the sampled runs, as a share of that of the prior's best choices, less 1."""


class Scorer(torch.nn.Sequential):
    """The network of `native/decide.c`; it answers 0 before the training."""

    def __init__(self) -> None:
        last = torch.nn.Linear(HIDDEN, 1)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        super().__init__(
            torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(), last,
        )  # fmt: skip

    def weights(self) -> NDArray[np.float32]:
        """Return the weights in the order of the native library."""
        parts = [part.detach().numpy() for part in self.parameters()]
        weights: NDArray[np.float32] = np.concatenate([part.T.ravel() for part in parts])
        assert len(weights) == WEIGHTS  # noqa: S101 - the sizes are those of decide.h
        return weights


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
    network = Scorer()
    optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    for iteration in range(training.iterations):
        left = 1 - 0.9 * iteration / training.iterations
        optimizer.param_groups[0]["lr"] = training.learning_rate * left
        weights = network.weights()
        settings = settings_of(goal, weights, _PLAIN, sharpness=training.sharpness)
        batch: list[tuple[Episode, NDArray[np.float64]]] = []
        costs = []
        for number in range(training.workloads):
            seed = (training.seed * training.iterations + iteration) * training.workloads + number
            workload = draw(seed, objective)
            runs = range(1, training.runs + 1)
            episodes = [workload.play(settings, run + seed * 64, recorder) for run in runs]
            batch += zip(episodes, advantages(episodes, goal), strict=True)
            before = cost_of(workload.play(prior), goal)
            costs.append(np.mean([cost_of(one, goal) for one in episodes]) / before - 1)
        update(network, optimizer, batch, training)
        yield Progress(objective, iteration + 1, network.weights(), float(np.mean(costs)))


def cost_of(episode: Episode, goal: Goal) -> float:
    """Return what an objective counts of a run."""
    return episode.total if goal.completion else episode.makespan


def advantages(episodes: list[Episode], goal: Goal) -> list[NDArray[np.float64]]:
    """Return the advantage of each decision of each run of one workload."""
    costs = np.array([cost_of(episode, goal) for episode in episodes])
    scale = costs.std() + 1e-4 * costs.mean()
    if not goal.completion:
        saved = (costs.mean() - costs) / scale
        return [np.full(len(e.times), one) for e, one in zip(episodes, saved, strict=True)]
    curves = [
        (np.append(e.times, e.makespan), e.total - np.append(e.totals, e.total)) for e in episodes
    ]
    return [
        (np.mean([np.interp(e.times, *curve) for curve in curves], axis=0) - (e.total - e.totals))
        / scale
        for e in episodes
    ]


def update(
    network: Scorer,
    optimizer: torch.optim.Optimizer,
    batch: list[tuple[Episode, NDArray[np.float64]]],
    training: Training,
) -> None:
    """Make each decision more likely by its advantage, in one pass over all decisions."""
    features = torch.from_numpy(np.concatenate([episode.features for episode, _ in batch]))
    gains = torch.from_numpy(np.concatenate([episode.gains for episode, _ in batch]))
    advantage = torch.from_numpy(np.concatenate([one for _, one in batch]).astype(np.float32))
    starts = np.cumsum([0, *(len(episode.gains) for episode, _ in batch)])
    first = np.concatenate([e.first[:-1] + s for (e, _), s in zip(batch, starts, strict=False)])
    chosen = np.concatenate([e.chosen + s for (e, _), s in zip(batch, starts, strict=False)])
    ends = np.append(first[1:], starts[-1])
    for part in torch.split(torch.randperm(len(chosen)), training.batch):
        some = part.numpy()  # a tensor of one number would be taken as an index
        counts = torch.from_numpy(ends[some] - first[some])
        # The choices of some decisions, one row for each decision; padded with the first.
        offset = torch.arange(int(counts.max()))
        there = offset < counts[:, None]
        rows = torch.from_numpy(first[some])[:, None] + offset * there
        scores = gains[rows] + network(features[rows]).squeeze(-1)
        logits = (training.sharpness * scores).masked_fill(~there, -torch.inf)
        logarithm = torch.log_softmax(logits, 1)
        place = torch.from_numpy(chosen[some] - first[some])[:, None]
        likely = logarithm.gather(1, place).squeeze(1)
        entropy = -(logarithm.exp() * logarithm.masked_fill(~there, 0)).sum(1)
        loss = -(likely * advantage[some]).mean() - training.entropy * entropy.mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), training.clip)
        optimizer.step()
