"""Trains a network in iterations; a training can stop and resume between two iterations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from partita_policies.dqn.configuration import Training
from partita_policies.dqn.demand import Floats
from partita_policies.dqn.observation import STATE_FEATURES, Observation
from partita_research.training.learning import DQNLearner, Learner, StudyLearner, tensors
from partita_research.training.learning_environment import Choose, Scenario, run
from partita_research.training.network import Scorer, build
from partita_research.training.replay_buffer import DecisionBatch

__all__ = ["Point", "Progress", "Scenarios", "Trainer", "greedy", "validate"]

_TEMPERATURE = 0.15
"""Temperature of exploration: combinations whose work in a second has a higher value are tried
more often, since the best one is probably among them."""

Scenarios = Callable[[int], Scenario]
"""Draws the workload with a number: negative numbers for validation, others for training."""


class Point(NamedTuple):
    """A point of the learning curve."""

    iteration: int
    """Iterations done."""
    makespan: float
    """Mean over the validation workloads, relative to running the jobs one after the other."""
    loss: float
    decisions: int
    """Number of decisions in the training so far."""


@dataclass(slots=True)
class Progress:
    """Progress of a training, and its learning curve."""

    iteration: int = 0
    decisions: int = 0
    loss: float = 0.0
    curve: list[Point] = field(default_factory=list)
    best: float = float("inf")
    """The lowest makespan of the curve."""


class Trainer:
    """One training.

    Parameters
    ----------
    training
        Settings of the training.
    scenarios
        Source of the workloads.
    device
        `cpu` or `cuda`, for the network only: simulations run on the CPU.
    """

    def __init__(self, training: Training, scenarios: Scenarios, device: str = "cpu") -> None:
        self.training, self.device = training, device
        self.scenarios = scenarios
        self.random = np.random.default_rng(training.seed)
        network = build(training)
        self.learner: Learner
        if training.algorithm == "study":
            self.learner = StudyLearner(network, training, device)
        else:
            self.learner = DQNLearner(network, training, device, self.random)
        self.progress = Progress()
        self._held_out = [scenarios(-1 - number) for number in range(training.validation)]
        self.best = {name: part.clone() for name, part in self._weights().items()}
        self.known = np.stack((np.full(STATE_FEATURES, np.inf), np.full(STATE_FEATURES, -np.inf)))
        """Minimum and maximum of each state feature so far."""

    def iterations(self) -> Iterator[Progress]:
        """Train until all iterations are done, and yield after each."""
        training, progress = self.training, self.progress
        if not progress.curve:
            self._validate()
        while progress.iteration < training.iterations:
            first = (training.seed * training.iterations + progress.iteration) * training.episodes
            drawn = [self.scenarios(first + number) for number in range(training.episodes)]
            choose = self._exploring(training.epsilon(progress.iteration))
            trajectories = run(drawn, choose, window=training.window, mask=training.mask)
            self._note(
                [decision.state for trajectory in trajectories for decision in trajectory.decisions]
            )
            progress.loss = self.learner.learn(trajectories, progress.iteration)
            progress.iteration += 1
            done = progress.iteration == training.iterations
            if done or progress.iteration % training.validate_every == 0:
                self._validate()
            yield progress

    def network(self) -> Scorer:
        """Return the best network of the learning curve."""
        network = build(self.training)
        network.load_state_dict(self.best)
        return network

    def _note(self, states: Sequence[Floats]) -> None:
        self.progress.decisions += len(states)
        if states:
            met = np.stack(states)
            self.known[0] = np.minimum(self.known[0], met.min(axis=0))
            self.known[1] = np.maximum(self.known[1], met.max(axis=0))

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: part.cpu() for name, part in self.learner.serving.state_dict().items()}

    def _validate(self) -> None:
        progress = self.progress
        makespan = validate(self.learner.serving, self._held_out, self.training, self.device)
        progress.curve.append(
            Point(progress.iteration, makespan, progress.loss, progress.decisions)
        )
        if makespan < progress.best:
            progress.best = makespan
            self.best = {name: part.clone() for name, part in self._weights().items()}

    def _exploring(self, epsilon: float) -> Choose:
        best = greedy(self.learner.network, self.device)

        def choose(observation: Observation) -> NDArray[np.int64]:
            chosen = best(observation)
            trying = self.random.random(len(chosen)) < epsilon
            tempting = observation.dual_value / _TEMPERATURE + self.random.gumbel(
                size=observation.dual_value.shape
            )
            tried = np.where(observation.legal, tempting, -np.inf).argmax(axis=1)
            return np.where(trying, tried, chosen)

        return choose


def greedy(network: Scorer, device: str = "cpu") -> Choose:
    """Return a function that always chooses the best combination according to a network."""

    def choose(observation: Observation) -> NDArray[np.int64]:
        decisions = DecisionBatch(
            observation.states, observation.candidates, observation.legal.astype(np.float32)
        )
        with torch.no_grad():
            given = [part.to(device) for part in tensors(decisions)]
            estimates = network.preference(*given).cpu().numpy()
        best: NDArray[np.int64] = np.where(observation.legal, estimates, -np.inf).argmax(axis=1)
        return best

    return choose


def validate(
    network: Scorer, drawn: Sequence[Scenario], training: Training, device: str = "cpu"
) -> float:
    """Return the mean makespan of workloads, relative to running the jobs one after the other."""
    trajectories = run(
        drawn, greedy(network, device), window=training.window, mask=training.mask, record=False
    )
    return float(np.mean([trajectory.makespan / trajectory.work for trajectory in trajectories]))
