"""Learning algorithms: updates of the network from recorded trajectories.

`DQNLearner`: V. Mnih et al., "Human-level control through deep reinforcement learning", Nature 518
(2015), with double Q-learning (H. van Hasselt et al., AAAI 2016), the dueling network (Z. Wang et
al., ICML 2016), n-step returns (R. Sutton, A. Barto, "Reinforcement Learning", 2nd edition, ch. 7)
and a target network that follows slowly (T. Lillicrap et al., ICLR 2016).

`StudyLearner`: the update of J. Oh, "A Job Placement Using Reinforcement Learning in GPU
Virtualization Environment" (2019), equation 2 and algorithm 1, as printed: theta moves along the
sum of grad log pi(s, a) (q - v), where q is the estimate of the network, v the observed return and
pi the softmax of q. There is one step in each iteration, after its N episodes.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from partita_policies.dqn.configuration import Training
from partita_research.training.learning_environment import Trajectory, transitions
from partita_research.training.network import Scorer
from partita_research.training.replay_buffer import (
    DecisionBatch,
    ReplayBuffer,
    TransitionBatch,
    padded,
)

__all__ = ["DQNLearner", "Learner", "StudyLearner", "tensors"]

_ILLEGAL = -1e9


def tensors(decisions: DecisionBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Convert arrays to tensors."""
    return (
        torch.from_numpy(decisions.states),
        torch.from_numpy(decisions.candidates),
        torch.from_numpy(decisions.legal),
    )


class Learner(ABC):
    """Base class of the algorithms, with a network, an optimiser and a device."""

    def __init__(self, network: Scorer, training: Training, device: str) -> None:
        self.network = network.to(device)
        self.training, self.device = training, device
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=training.learning_rate)

    @property
    def serving(self) -> Scorer:
        """The network for decisions after training."""
        return self.network

    @abstractmethod
    def learn(self, trajectories: Sequence[Trajectory], iteration: int) -> float:
        """Update the network from the trajectories of an iteration; return the mean loss."""

    def _on_device(self, decisions: DecisionBatch) -> tuple[Tensor, Tensor, Tensor]:
        states, candidates, legal = tensors(decisions)
        return states.to(self.device), candidates.to(self.device), legal.to(self.device)

    def _step(self, loss: Tensor, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self.training.clip)
        self.optimiser.step()


class DQNLearner(Learner):
    """Deep Q-learning from replayed transitions."""

    def __init__(
        self, network: Scorer, training: Training, device: str, random: np.random.Generator
    ) -> None:
        super().__init__(network, training, device)
        self.random = random
        self.target = copy.deepcopy(self.network)
        self.target.requires_grad_(requires_grad=False)
        self.replay = ReplayBuffer(training.replay, spread=not training.shared)

    @property
    @override
    def serving(self) -> Scorer:
        # The target network averages recent networks, and is more stable than each of them.
        return self.target

    @override
    def learn(self, trajectories: Sequence[Trajectory], iteration: int) -> float:
        training = self.training
        for trajectory in trajectories:
            self.replay.add(transitions(trajectory, training.steps, training.gamma))
        total, rate = 0.0, training.rate(iteration)
        for _ in range(training.updates):
            total += self._update(self.replay.draw(training.batch, self.random), rate)
        return total / training.updates

    def _update(self, batch: TransitionBatch, rate: float) -> float:
        wanted = self._wanted(batch)
        actions = torch.from_numpy(batch.actions).to(self.device)
        estimates = self.network(*self._on_device(batch.decisions))
        chosen = estimates.gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, wanted)
        self._step(loss, rate)
        with torch.no_grad():
            pairs = zip(self.target.parameters(), self.network.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, self.training.polyak)
        return float(loss.detach())

    @torch.no_grad()
    def _wanted(self, batch: TransitionBatch) -> Tensor:
        following = self._on_device(batch.following)
        forbidden = following[2] == 0
        estimates = self.target(*following).masked_fill(forbidden, _ILLEGAL)
        judge = self.target.preference(*following).masked_fill(forbidden, _ILLEGAL)
        if self.training.double:
            judge = self.network.preference(*following).masked_fill(forbidden, _ILLEGAL)
        best = estimates.gather(1, judge.argmax(dim=1, keepdim=True)).squeeze(1)
        rewards = torch.from_numpy(batch.rewards).to(self.device)
        discounts = torch.from_numpy(batch.discounts).to(self.device)
        return torch.where(discounts > 0, rewards + discounts * best, rewards)


class StudyLearner(Learner):
    """The update of the study, as printed."""

    @override
    def learn(self, trajectories: Sequence[Trajectory], iteration: int) -> float:
        decisions, actions, returns = [], [], []
        for trajectory in trajectories:
            whole = transitions(trajectory, len(trajectory.decisions), self.training.gamma)
            decisions += [one.decision for one in whole]
            actions += [one.action for one in whole]
            returns += [one.reward for one in whole]
        if not decisions:
            return 0.0
        given = self._on_device(padded(decisions, spread=False))
        estimates = self.network(*given)
        place = torch.tensor(actions, device=self.device)[:, None]
        chances = torch.log_softmax(estimates.masked_fill(given[2] == 0, _ILLEGAL), dim=1)
        difference = estimates.detach().gather(1, place) - torch.tensor(
            returns, device=self.device, dtype=torch.float32
        ).unsqueeze(1)
        loss = -(chances.gather(1, place) * difference).sum() / len(trajectories)
        self._step(loss, self.training.rate(iteration))
        return float(loss.detach())
