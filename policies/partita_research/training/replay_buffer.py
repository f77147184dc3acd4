"""What was lived through, to learn from again: a ring of transitions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.demand import Floats, Integers
from partita_policies.dqn.observation import CANDIDATE_FEATURES, STATE_FEATURES
from partita_research.training.learning_environment import Ask, Transition

__all__ = ["Asks", "ReplayBuffer", "TransitionBatch", "padded"]


class Asks(NamedTuple):
    """Several asks, padded to the largest number of combinations among them."""

    states: Floats
    """(B, STATE_FEATURES)."""
    candidates: Floats
    """(B, L, CANDIDATE_FEATURES)."""
    legal: Floats
    """(B, L): 1 or 0."""


class TransitionBatch(NamedTuple):
    """Transitions as arrays."""

    asks: Asks
    actions: Integers
    """(B): places in `asks`."""
    rewards: Floats
    discounts: Floats
    following: Asks
    """Where nothing follows, an ask without legal combinations."""


def padded(asks: Sequence[Ask | None], *, spread: bool) -> Asks:
    """Put asks side by side.

    Parameters
    ----------
    asks
        None stands for one that is not there.
    spread
        Whether combinations keep their places, for a network that tells them by that; otherwise
        only the legal ones are there, one after the other.
    """
    sizes = [0 if ask is None else _width(ask, spread=spread) for ask in asks]
    width = max(*sizes, 1) if len(sizes) > 1 else max(sizes[0], 1)
    states = np.zeros((len(asks), STATE_FEATURES), np.float32)
    candidates = np.zeros((len(asks), width, CANDIDATE_FEATURES), np.float32)
    legal = np.zeros((len(asks), width), np.float32)
    for row, ask in enumerate(asks):
        if ask is not None:
            places = ask.places if spread else slice(len(ask.places))
            states[row] = ask.state
            candidates[row, places] = ask.candidates
            legal[row, places] = 1
    return Asks(states, candidates, legal)


def _width(ask: Ask, *, spread: bool) -> int:
    return int(ask.places[-1]) + 1 if spread else len(ask.places)


class ReplayBuffer:
    """The latest transitions, drawn from with equal chances.

    Parameters
    ----------
    capacity
        How many are kept.
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
        """Keep transitions, in place of the oldest."""
        for transition in transitions:
            if len(self._ring) < self._capacity:
                self._ring.append(transition)
            else:
                self._ring[self._next] = transition
            self._next = (self._next + 1) % self._capacity

    def draw(self, count: int, random: np.random.Generator) -> TransitionBatch:
        """Draw some, with replacement."""
        drawn = [self._ring[place] for place in random.integers(len(self._ring), size=count)]
        asks = padded([one.ask for one in drawn], spread=self._spread)
        actions = [int(one.ask.places[one.action]) if self._spread else one.action for one in drawn]
        return TransitionBatch(
            asks,
            np.array(actions, np.int64),
            np.array([one.reward for one in drawn], np.float32),
            np.array([one.discount for one in drawn], np.float32),
            padded([one.following for one in drawn], spread=self._spread),
        )

    def dump(self) -> dict[str, NDArray[np.generic]]:
        """Return all that is kept as arrays by name; asks that several share are kept once."""
        asks: dict[int, int] = {}
        kept: list[Ask] = []
        for one in self._ring:
            for ask in (one.ask, one.following):
                if ask is not None and id(ask) not in asks:
                    asks[id(ask)] = len(kept)
                    kept.append(ask)
        counts = [len(ask.places) for ask in kept]
        none = np.zeros((0, CANDIDATE_FEATURES), np.float32)
        return {
            "states": np.array([ask.state for ask in kept], np.float32),
            "candidates": np.concatenate([none, *(ask.candidates for ask in kept)]),
            "places": np.concatenate([np.zeros(0, np.int64), *(ask.places for ask in kept)]),
            "counts": np.array(counts, np.int64),
            "bounds": np.array([ask.bound for ask in kept], np.float64),
            "units": np.array([ask.unit for ask in kept], np.float64),
            "asks": np.array([asks[id(one.ask)] for one in self._ring], np.int64),
            "actions": np.array([one.action for one in self._ring], np.int64),
            "rewards": np.array([one.reward for one in self._ring], np.float64),
            "discounts": np.array([one.discount for one in self._ring], np.float64),
            "following": np.array(
                [-1 if one.following is None else asks[id(one.following)] for one in self._ring],
                np.int64,
            ),
            "next": np.array([self._next], np.int64),
        }

    def load(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Take back what `dump` returned."""
        ends = np.cumsum(arrays["counts"].astype(np.int64)).tolist()
        kept = [
            Ask(
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
            Transition(kept[ask], action, reward, discount, kept[after] if after >= 0 else None)
            for ask, action, reward, discount, after in zip(*columns, strict=True)
        ]
        self._next = int(arrays["next"].tolist()[0])


_COLUMNS = ("asks", "actions", "rewards", "discounts", "following")
