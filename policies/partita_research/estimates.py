"""Quantiles of samples, and how sure their mean is."""

from collections.abc import Sequence
from math import ceil, isfinite, sqrt
from statistics import stdev

__all__ = ["half_width", "quantile"]

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1 to 29 degrees of freedom (NIST/SEMATECH e-Handbook of
Statistical Methods, section 1.3.6.7.2). The last one is used for more degrees of freedom, which
makes the interval slightly too wide."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed; 0 of none."""
    return sorted(values)[max(ceil(share * len(values)), 1) - 1] if values else 0.0


def half_width(values: Sequence[float]) -> float:
    """Return half of the mean's 95 % confidence interval; 0 of one value or an infinite mean."""
    if len(values) < 2 or not isfinite(sum(values)):
        return 0.0
    quantile = _STUDENT[min(len(values) - 2, len(_STUDENT) - 1)]
    return quantile * stdev(values) / sqrt(len(values))
