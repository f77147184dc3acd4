"""Whether what was measured again and again has grown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

__all__ = ["Trend", "trend"]

_T = 2.07
"""Of Student's distribution with 23 degrees of freedom, for 95 %: lines are laid through about 25
points (NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2)."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through points, and the ends of the time that they cover."""

    slope: float
    """By time."""
    margin: float
    """Half of the interval in which the slope is with 95 %, were each point a chance of its own.
    What a process keeps is not: it keeps it longer than from one point to the next."""
    first: float
    """Mean of the first quarter of the points."""
    last: float
    """Mean of the last quarter."""

    @property
    def growth(self) -> float:
        """From the first quarter to the last, percent."""
        return 100 * (self.last / self.first - 1)


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Lay a line through points by least squares.

    Raises
    ------
    ValueError
        There are less than four.
    """
    count = len(times)
    if count < 4:
        raise ValueError(f"no trend in {count} points")
    line = statistics.linear_regression(times, values)
    middle = statistics.fmean(times)
    spread = sum((at - middle) ** 2 for at in times)
    off = sum(
        (value - line.slope * at - line.intercept) ** 2
        for at, value in zip(times, values, strict=True)
    )
    quarter = count // 4
    return Trend(
        slope=line.slope,
        margin=_T * sqrt(off / (count - 2) / spread),
        first=statistics.fmean(values[:quarter]),
        last=statistics.fmean(values[-quarter:]),
    )
