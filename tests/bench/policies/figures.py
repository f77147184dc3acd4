"""Means, paired differences and quantiles, with their uncertainty."""

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import NamedTuple

from partita_research.cli.simulate_statistics import half_width

__all__ = ["Estimate", "against", "estimate", "quantile"]


class Estimate(NamedTuple):
    """A mean over samples that are independent of each other, by default one for each seed."""

    mean: float
    half: float
    """Half of its 95 % confidence interval."""
    count: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of values with its interval."""
    return Estimate(fmean(values), half_width(values), len(values))


def against(ours: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return by how many percent we are above others, from pairs that share their seed.

    Pairs in which the other is 0 are equal if both are, and are left out otherwise.
    """
    pairs = [(mine, theirs) for mine, theirs in zip(ours, others, strict=False)]
    shares = [
        100 * (mine / theirs - 1) if theirs else 0.0 for mine, theirs in pairs if theirs or not mine
    ]
    return estimate(shares or [0.0])


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(ceil(share * len(values)), 1) - 1]
