"""Means with their uncertainty."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

__all__ = ["ratio", "summary"]

_T_975 = {
    2: 12.706,
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
    7: 2.447,
    8: 2.365,
    9: 2.306,
    10: 2.262,
    20: 2.093,
}
"""97.5 % quantile of Student's t by number of samples (degrees of freedom plus one); from its table
in any textbook."""


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, half the width of its 95 % confidence interval, and the values."""
    count = len(values)
    half = _T_975[count] * stdev(values) / sqrt(count) if count > 1 else 0.0
    return {"mean": fmean(values), "ci95": half, "values": list(values)}


def ratio(ours: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the summary of the ratios of pairs that share their seed."""
    return summary([mine / theirs for mine, theirs in zip(ours, others, strict=True)])
