"""Training of the policies deeprm-max and deeprm-mean: REINFORCE.

Algorithm 1 of H. Mao, M. Alizadeh, I. Menache, S. Kandula, "Resource Management with Deep
Reinforcement Learning", HotNets 2016: several runs of each workload sample the choices from the
softmax of the network's outputs, and the logarithms of the probabilities of a run's choices move by
how much better it was than the mean of these runs. The cost of a run is its makespan, as in the
DqnGPU study, relative to that mean.
"""

from collections.abc import Callable, Iterator, Sequence
from math import nan
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from partita_policies.deeprm import SHAPES, DeepRM, DeepRMParameters
from partita_policies.network import Floats, Network
from partita_research.simulator import simulate
from partita_research.training.scenarios import Scenario

__all__ = ["DeepRMProgress", "DeepRMTraining", "train"]


class DeepRMTraining(BaseModel):
    """Settings of a training, written into the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    iterations: int = Field(default=100, ge=1)
    workloads: int = Field(default=8, ge=1)
    """In an iteration, one gradient step."""
    runs: int = Field(default=8, ge=2)
    """Of each workload; the paper has 20."""
    learning_rate: float = Field(default=1e-2, gt=0)


class DeepRMProgress(NamedTuple):
    """The state of a training after an iteration."""

    iteration: int
    weights: dict[str, Floats]
    makespan: float
    """Mean makespan of the sampled runs, as a multiple of the longest job; NaN before them."""


class _SampledRun(NamedTuple):
    """The choices of one run."""

    states: torch.Tensor
    legal: torch.Tensor
    chosen: torch.Tensor
    makespan: float


def train(
    kind: type[DeepRM], training: DeepRMTraining, draw: Callable[[int], Scenario]
) -> Iterator[DeepRMProgress]:
    """Train the network of a policy, and yield it at first and after each iteration.

    Parameters
    ----------
    kind
        The policy.
    draw
        Returns the workload of a number; equal numbers give equal workloads.
    """
    torch.manual_seed(training.seed)
    torch.set_num_threads(1)
    random = np.random.default_rng(training.seed)
    weights = {name: torch.nn.Parameter(_first(shape)) for name, shape in SHAPES.items()}
    optimizer = torch.optim.Adam(weights.values(), lr=training.learning_rate)
    yield DeepRMProgress(0, _arrays(weights), nan)
    for iteration in range(training.iterations):
        optimizer.zero_grad()
        served, costs = _arrays(weights), []
        for number in range(training.workloads):
            place = training.seed * training.iterations + iteration
            scenario = draw(place * training.workloads + number)
            runs = [_play(kind, served, scenario, random) for _ in range(training.runs)]
            mean = sum(run.makespan for run in runs) / len(runs)
            for run in runs:
                hidden = torch.relu(run.states @ weights["hidden"] + weights["hidden_bias"])
                answers = hidden @ weights["choice"] + weights["choice_bias"]
                likely = torch.log_softmax(answers.masked_fill(~run.legal, -torch.inf), 1)
                gain = 1 - run.makespan / mean
                loss = -gain * likely.gather(1, run.chosen[:, None]).sum() / training.runs
                torch.autograd.backward(loss / training.workloads)
            costs.append(mean / max(task.truth.duration for task in scenario.tasks))
        optimizer.step()
        yield DeepRMProgress(iteration + 1, _arrays(weights), float(np.mean(costs)))


def _first(shape: tuple[int, ...]) -> torch.Tensor:
    """Return weights before the training: scaled by their inputs, and no bias."""
    return torch.randn(shape) / shape[0] ** 0.5 if len(shape) > 1 else torch.zeros(shape)


def _arrays(weights: dict[str, torch.nn.Parameter]) -> dict[str, Floats]:
    return {name: part.detach().numpy().copy() for name, part in weights.items()}


def _play(
    kind: type[DeepRM], weights: dict[str, Floats], scenario: Scenario, random: np.random.Generator
) -> _SampledRun:
    seen: list[tuple[Floats, NDArray[np.bool_], Sequence[int]]] = []

    def sample(states: Floats, answers: Floats) -> NDArray[np.int64]:
        # The largest of the logarithms with Gumbel noise is a sample of the softmax.
        chosen: NDArray[np.int64] = (answers + random.gumbel(size=answers.shape)).argmax(axis=1)
        seen.append((states, np.isfinite(answers), chosen.tolist()))
        return chosen

    policy = kind(DeepRMParameters(), Network(weights, {}), sample)
    result = simulate(scenario.tasks, [scenario.gpu], policy)
    states, legal, chosen = zip(*seen, strict=True)
    return _SampledRun(
        torch.from_numpy(np.vstack(states)),
        torch.from_numpy(np.vstack(legal)),
        torch.tensor([one for row in chosen for one in row]),
        result.makespan,
    )
