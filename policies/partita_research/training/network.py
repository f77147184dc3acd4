"""The network in torch: a value for the state, and an advantage for each combination.

`SharedScorer` scores all combinations with the same weights, in any number and order.
`SeparateScorer` has one output for each combination, as in the DqnGPU study. It is kept for the
ablation and cannot be exported.
"""

import torch
from torch import Tensor, nn
from typing_extensions import override

from partita_policies.dqn.configuration import Training
from partita_policies.dqn.observation import CANDIDATE_FEATURES, DUAL_VALUE, STATE_FEATURES

__all__ = ["Scorer", "SeparateScorer", "SharedScorer", "build"]


class Scorer(nn.Module):
    """Estimates the return of each combination: states, candidates, legal -> (G, A)."""

    def __init__(self, *, dueling: bool, prior: float) -> None:
        super().__init__()
        self.dueling, self.prior = dueling, prior

    def preference(self, states: Tensor, candidates: Tensor, legal: Tensor) -> Tensor:
        """Return the scores by which combinations are compared: estimate plus prior."""
        estimates: Tensor = self(states, candidates, legal)
        return estimates + self.prior * candidates[..., DUAL_VALUE]

    def combine(self, value: Tensor, advantage: Tensor, legal: Tensor) -> Tensor:
        """Return value plus advantage, less the mean advantage of the legal combinations."""
        if not self.dueling:
            return advantage
        count = legal.sum(dim=-1, keepdim=True).clamp(min=1)
        mean = (advantage * legal).sum(dim=-1, keepdim=True) / count
        return value + advantage - mean


class SharedScorer(Scorer):
    """One scorer for all combinations."""

    def __init__(self, hidden: int, *, dueling: bool = True, prior: float = 0.0) -> None:
        super().__init__(dueling=dueling, prior=prior)
        self.state = nn.Linear(STATE_FEATURES, hidden)
        self.candidate = nn.Linear(CANDIDATE_FEATURES, hidden)
        self.context = nn.Linear(hidden, hidden, bias=False)
        self.deep = nn.Linear(hidden, hidden)
        self.advantage = nn.Linear(hidden, 1)
        self.value_hidden = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, 1)

    @override
    def forward(self, states: Tensor, candidates: Tensor, legal: Tensor) -> Tensor:
        state = torch.relu(self.state(states))
        mixed = torch.relu(self.candidate(candidates) + self.context(state).unsqueeze(1))
        advantage = self.advantage(torch.relu(self.deep(mixed))).squeeze(-1)
        value = self.value(torch.relu(self.value_hidden(state)))
        return self.combine(value, advantage, legal)


class SeparateScorer(Scorer):
    """One output for each combination of a full window."""

    def __init__(
        self, hidden: int, window: int, *, dueling: bool = True, prior: float = 0.0
    ) -> None:
        super().__init__(dueling=dueling, prior=prior)
        self.outputs = 2**window
        inputs = STATE_FEATURES + self.outputs * CANDIDATE_FEATURES
        self.body = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.advantage = nn.Linear(hidden, self.outputs)
        self.value = nn.Linear(hidden, 1)

    @override
    def forward(self, states: Tensor, candidates: Tensor, legal: Tensor) -> Tensor:
        given = candidates.shape[1]
        shown = candidates * legal.unsqueeze(-1)
        padded = nn.functional.pad(shown, (0, 0, 0, self.outputs - given)).flatten(1)
        body = self.body(torch.cat((states, padded), dim=1))
        advantage = self.advantage(body)[:, :given]
        return self.combine(self.value(body), advantage, legal)


def build(training: Training) -> Scorer:
    """Return the initial network of a training, with weights drawn from its seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        dueling, prior = training.dueling, training.prior
        if training.shared:
            return SharedScorer(training.hidden, dueling=dueling, prior=prior)
        return SeparateScorer(training.hidden, training.window, dueling=dueling, prior=prior)
