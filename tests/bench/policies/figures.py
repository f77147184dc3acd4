"""Means with their uncertainty."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from partita_research.cli.simulate_statistics import half_width

__all__ = ["ratio", "summary"]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, half the width of its 95 % confidence interval, and the values."""
    return {"mean": fmean(values), "ci95": half_width(values), "values": list(values)}


def ratio(ours: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the summary of the ratios of pairs that share their seed."""
    return summary([mine / theirs for mine, theirs in zip(ours, others, strict=True)])
