"""The policy: jobs are offered in rounds, and the network scores all GPUs in one batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from partita_policies.dqn.demand import Catalogue, divided
from partita_policies.dqn.job_arrays import subsets
from partita_policies.dqn.observation import Observation, observe
from partita_policies.dqn.offers import Offer, OfferRound
from partita_policies.dqn.prices import ThroughputCache
from partita_policies.dqn.served import ScoringModel
from partita_policies.profile_cache import ProfileCache
from partita_policies.types import Parameters, Placement, Snapshot

__all__ = ["DQN", "DQNParameters"]

_ROWS = 1 << 11
"""Maximum number of combinations scored in a round; it bounds the time for a thousand GPUs."""
_MARGIN = 0.5
"""Tolerated distance of a feature from its training range, as a share of that range."""


class DQNParameters(Parameters):
    """Parameters of `DQN`."""

    model: Path | None = Field(
        default=None,
        description="ONNX file that `partita train` wrote; by default the one of this package.",
    )
    slowdown_budget: float | None = Field(
        default=None,
        ge=1,
        description=(
            "The largest predicted slowdown of any job relative to running alone, such as 1.05; "
            "unlimited by default."
        ),
    )
    window: int = Field(
        default=8,
        ge=1,
        le=8,
        description=(
            "How many fitting job classes are offered to a GPU at a time; all combinations of "
            "them are rated."
        ),
    )


class DQN:
    """Start on each GPU the combination of jobs that a trained neural network rates best.

    In a situation far from those of its training it takes the combination of which the work per
    second has the highest dual value (see `dqn.prices`) instead. When the network returns values
    that are not numbers, `decide` raises an error and the operator uses the fallback policy.
    """

    parameters: ClassVar[type[Parameters]] = DQNParameters

    def __init__(self, parameters: DQNParameters) -> None:
        self._window = parameters.window
        self._budget = parameters.slowdown_budget
        self._model = ScoringModel(parameters.model)
        self._throughputs = ThroughputCache()
        self._profiles = ProfileCache(divided)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Make offers until every GPU is full or waits."""
        catalogue = Catalogue(self._profiles)
        round_ = OfferRound(snapshot, catalogue)
        while offers := round_.make_offers(self._window, _ROWS):
            round_.apply(offers, self._choose(offers, catalogue, snapshot))
        return round_.placements

    def _choose(
        self, offers: Sequence[Offer], catalogue: Catalogue, snapshot: Snapshot
    ) -> list[list[int]]:
        sharing, budget = snapshot.sharing, self._budget
        observation = observe(offers, catalogue, sharing, self._throughputs, slowdown_budget=budget)
        promise = np.where(
            self._out_of_range(observation)[:, None],
            observation.dual_value,
            self._model.estimates(observation),
        )
        chosen = np.where(observation.legal, promise, -np.inf).argmax(axis=1)
        combinations = subsets(observation.legal.shape[1].bit_length() - 1)
        return [np.flatnonzero(combinations[place]).tolist() for place in chosen.tolist()]

    def _out_of_range(self, observation: Observation) -> NDArray[np.bool_]:
        """Return for which GPUs a feature of the state is far outside its training range."""
        if self._model.known is None:
            return np.zeros(len(observation.states), bool)
        least, most = self._model.known
        margin = _MARGIN * np.maximum(most - least, 1)
        outside = (observation.states < least - margin) | (observation.states > most + margin)
        return np.asarray(outside.any(axis=1))
