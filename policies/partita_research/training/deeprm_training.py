"""Trains the networks of `deeprm`: REINFORCE with a baseline, as the paper's algorithm 1.

Each iteration runs several workloads several times, with actions drawn from the probabilities of
the network. The return after a step is minus the time until all jobs are done. The baseline is the
mean over the runs of the same workload at the same step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from partita_policies.deeprm import HIDDEN, INPUTS, SLOTS, VERSION, Usage, kind_of, see
from partita_policies.dqn.combination_forecast import Bools
from partita_policies.dqn.demand import Catalogue, Floats
from partita_research.training.export import write
from partita_research.training.learning_environment import Episode, Scenario, run_episodes

__all__ = ["DeepRMTraining", "TrainingReport", "export_deeprm", "train_deeprm"]

_ILLEGAL = -1e9


class DeepRMTraining(BaseModel):
    """Settings of one training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    usage: Usage
    seed: int = 0
    iterations: int = Field(default=120, ge=1)
    workloads: int = Field(default=4, ge=1)
    """Workloads of an iteration."""
    runs: int = Field(default=4, ge=2)
    """Runs of each workload; the baseline needs at least two."""
    learning_rate: float = Field(default=3e-3, gt=0)
    validation: int = Field(default=32, ge=1)
    validate_every: int = Field(default=10, ge=1)


class TrainingReport(BaseModel):
    """Iterations done, and the validation makespan relative to running jobs one by one."""

    iteration: int
    makespan: float


@dataclass(slots=True)
class _TrainingRun:
    states: list[Floats] = field(default_factory=list)
    legal: list[Bools] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def train_deeprm(
    training: DeepRMTraining, scenarios: Callable[[int], Scenario]
) -> Iterator[tuple[TrainingReport, nn.Sequential]]:
    """Train, and yield each point of the learning curve with the best network so far."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        network = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SLOTS + 1))
        best = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SLOTS + 1))
    random = np.random.default_rng(training.seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    held_out = [scenarios(-1 - number) for number in range(training.validation)]
    least = np.inf
    for iteration in range(training.iterations + 1):
        if iteration % training.validate_every == 0 or iteration == training.iterations:
            _, episodes = _live(network, held_out, training.usage, None)
            makespan = float(np.mean([episode.now / episode.work_done for episode in episodes]))
            if makespan < least:
                least = makespan
                best.load_state_dict(network.state_dict())
            yield TrainingReport(iteration=iteration, makespan=makespan), best
        if iteration == training.iterations:
            return
        first = (training.seed * training.iterations + iteration) * training.workloads
        drawn = [scenarios(first + number) for number in range(training.workloads)]
        repeated = [one for one in drawn for _ in range(training.runs)]
        trajectories, episodes = _live(network, repeated, training.usage, random)
        loss = _loss(network, trajectories, episodes, drawn, training.runs)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def export_deeprm(network: nn.Sequential, training: DeepRMTraining, path: Path) -> None:
    """Write a network as ONNX, with its settings in the metadata."""
    weights = {name: part.detach().numpy() for name, part in network.named_parameters()}
    constants = {name: np.ascontiguousarray(part.T) for name, part in weights.items()}
    nodes = [
        ("MatMul", ["states", "0.weight"], "sum"),
        ("Add", ["sum", "0.bias"], "all"),
        ("Relu", ["all"], "hidden"),
        ("MatMul", ["hidden", "2.weight"], "wish"),
        ("Add", ["wish", "2.bias"], "free"),
        # Rank illegal actions below all others: (legal - 1) is 0 or -1.
        ("Sub", ["legal", "one"], "forbidden"),
        ("Mul", ["forbidden", "far"], "behind"),
        ("Add", ["free", "behind"], "estimates"),
    ]
    constants["one"] = np.array(1, np.float32)
    constants["far"] = np.array(-_ILLEGAL, np.float32)
    metadata = {
        "kind": kind_of(training.usage),
        "features": str(VERSION),
        "training": training.model_dump_json(),
    }
    inputs: dict[str, list[str | int]] = {
        "states": ["gpus", INPUTS],
        "legal": ["gpus", SLOTS + 1],
    }
    write(nodes, constants, inputs, metadata, path)


def _live(
    network: nn.Sequential,
    drawn: Sequence[Scenario],
    usage: Usage,
    random: np.random.Generator | None,
) -> tuple[list[_TrainingRun], list[Episode]]:
    """Run workloads. Without a source of randomness, take the most probable action."""
    catalogue = Catalogue()
    trajectories = [_TrainingRun() for _ in drawn]

    def answer(episodes: Sequence[Episode]) -> list[list[int]]:
        states, legal = see([episode.offer for episode in episodes], catalogue, usage)
        with torch.no_grad():
            wishes = network(torch.from_numpy(states)).numpy()
        if random is not None:
            wishes = wishes + random.gumbel(size=wishes.shape)
        chosen = np.where(legal, wishes, -np.inf).argmax(axis=1).tolist()
        for row, episode in enumerate(episodes):
            run = trajectories[episode.number]
            run.states.append(states[row])
            run.legal.append(legal[row])
            run.actions.append(chosen[row])
            run.times.append(episode.now)
        return [[place - 1] if place else [] for place in chosen]

    return trajectories, run_episodes(drawn, answer, catalogue, SLOTS)


def _loss(
    network: nn.Sequential,
    trajectories: Sequence[_TrainingRun],
    episodes: Sequence[Episode],
    drawn: Sequence[Scenario],
    runs: int,
) -> Tensor:
    """Return the loss per run: minus the sum of log probabilities times advantages."""
    advantages = []
    for number, one in enumerate(drawn):
        group = range(number * runs, (number + 1) * runs)
        mean = sum(task.truth.duration for task in one.tasks) / len(one.tasks)
        returns = np.full((runs, max(len(trajectories[run].times) for run in group)), np.nan)
        for row, run in enumerate(group):
            left = episodes[run].now - np.array(trajectories[run].times)
            returns[row, : len(left)] = -left / mean
        above = returns - np.nanmean(returns, axis=0)
        advantages += [above[row, : len(trajectories[run].times)] for row, run in enumerate(group)]
    states = torch.from_numpy(np.concatenate([np.stack(run.states) for run in trajectories]))
    legal = torch.from_numpy(np.concatenate([np.stack(run.legal) for run in trajectories]))
    actions = torch.tensor([action for run in trajectories for action in run.actions])
    above_all = torch.from_numpy(np.concatenate(advantages).astype(np.float32))
    chances = torch.log_softmax(network(states).masked_fill(~legal, _ILLEGAL), dim=1)
    chosen = chances.gather(1, actions[:, None]).squeeze(1)
    return -(chosen * above_all).sum() / len(trajectories)
