"""Replay buffer: a ring of transitions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.demand import Floats, Integers
from partita_policies.dqn.observation import CANDIDATE_FEATURES, STATE_FEATURES
from partita_research.training.learning_environment import DecisionPoint, Transition

__all__ = ["DecisionBatch", "ReplayBuffer", "TransitionBatch", "padded"]


class DecisionBatch(NamedTuple):
    """Several decisions, padded to the largest number of combinations among them."""

    states: Floats
    """(B, STATE_FEATURES)."""
    candidates: Floats
    """(B, L, CANDIDATE_FEATURES)."""
    legal: Floats
    """(B, L): 1 or 0."""


class TransitionBatch(NamedTuple):
    """Transitions as arrays."""

    decisions: DecisionBatch
    actions: Integers
    """(B): indices of combinations in `decisions`."""
    rewards: Floats
    discounts: Floats
    following: DecisionBatch
    """A decision without legal combinations at the end of a workload."""


def padded(decisions: Sequence[DecisionPoint | None], *, spread: bool) -> DecisionBatch:
    """Combine decisions into a batch.

    Parameters
    ----------
    decisions
        Decisions; None for a missing one.
    spread
        Whether combinations keep their positions, for a network with an output for each position.
        If not, the legal combinations follow each other without gaps.
    """
    sizes = [0 if decision is None else _width(decision, spread=spread) for decision in decisions]
    width = max(*sizes, 1) if len(sizes) > 1 else max(sizes[0], 1)
    states = np.zeros((len(decisions), STATE_FEATURES), np.float32)
    candidates = np.zeros((len(decisions), width, CANDIDATE_FEATURES), np.float32)
    legal = np.zeros((len(decisions), width), np.float32)
    for row, decision in enumerate(decisions):
        if decision is not None:
            places = decision.places if spread else slice(len(decision.places))
            states[row] = decision.state
            candidates[row, places] = decision.candidates
            legal[row, places] = 1
    return DecisionBatch(states, candidates, legal)


def _width(decision: DecisionPoint, *, spread: bool) -> int:
    return int(decision.places[-1]) + 1 if spread else len(decision.places)


class ReplayBuffer:
    """The latest transitions, sampled with equal probability.

    Parameters
    ----------
    capacity
        Maximum number of transitions.
    spread
        As in `padded`.
    """

    def __init__(self, capacity: int, *, spread: bool = False) -> None:
        self._capacity, self._spread = capacity, spread
        self._ring: list[Transition] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Add transitions; replace the oldest ones if the buffer is full."""
        for transition in transitions:
            if len(self._ring) < self._capacity:
                self._ring.append(transition)
            else:
                self._ring[self._next] = transition
            self._next = (self._next + 1) % self._capacity

    def draw(self, count: int, random: np.random.Generator) -> TransitionBatch:
        """Draw a batch, with replacement."""
        drawn = [self._ring[place] for place in random.integers(len(self._ring), size=count)]
        decisions = padded([one.decision for one in drawn], spread=self._spread)
        actions = [
            int(one.decision.places[one.action]) if self._spread else one.action for one in drawn
        ]
        return TransitionBatch(
            decisions,
            np.array(actions, np.int64),
            np.array([one.reward for one in drawn], np.float32),
            np.array([one.discount for one in drawn], np.float32),
            padded([one.following for one in drawn], spread=self._spread),
        )

    def dump(self) -> dict[str, NDArray[np.generic]]:
        """Return the content as arrays by name; a decision shared by transitions occurs once."""
        decisions: dict[int, int] = {}
        kept: list[DecisionPoint] = []
        for one in self._ring:
            for decision in (one.decision, one.following):
                if decision is not None and id(decision) not in decisions:
                    decisions[id(decision)] = len(kept)
                    kept.append(decision)
        counts = [len(decision.places) for decision in kept]
        none = np.zeros((0, CANDIDATE_FEATURES), np.float32)
        return {
            "states": np.array([decision.state for decision in kept], np.float32),
            "candidates": np.concatenate([none, *(decision.candidates for decision in kept)]),
            "places": np.concatenate(
                [np.zeros(0, np.int64), *(decision.places for decision in kept)]
            ),
            "counts": np.array(counts, np.int64),
            "bounds": np.array([decision.bound for decision in kept], np.float64),
            "units": np.array([decision.unit for decision in kept], np.float64),
            "decisions": np.array([decisions[id(one.decision)] for one in self._ring], np.int64),
            "actions": np.array([one.action for one in self._ring], np.int64),
            "rewards": np.array([one.reward for one in self._ring], np.float64),
            "discounts": np.array([one.discount for one in self._ring], np.float64),
            "following": np.array(
                [
                    -1 if one.following is None else decisions[id(one.following)]
                    for one in self._ring
                ],
                np.int64,
            ),
            "next": np.array([self._next], np.int64),
        }

    def load(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Restore the content that `dump` returned."""
        ends = np.cumsum(arrays["counts"].astype(np.int64)).tolist()
        kept = [
            DecisionPoint(
                np.asarray(arrays["states"][row], np.float32),
                np.asarray(arrays["candidates"][start:end], np.float32),
                np.asarray(arrays["places"][start:end], np.int64),
                float(arrays["bounds"][row]),
                float(arrays["units"][row]),
            )
            for row, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        ]
        columns = [arrays[name].tolist() for name in _COLUMNS]
        self._ring = [
            Transition(
                kept[decision], action, reward, discount, kept[after] if after >= 0 else None
            )
            for decision, action, reward, discount, after in zip(*columns, strict=True)
        ]
        self._next = int(arrays["next"].tolist()[0])


_COLUMNS = ("decisions", "actions", "rewards", "discounts", "following")
