"""The form of a metric, and bounds of histograms."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["DAY", "HOUR", "LONG", "MINUTE", "SOON", "Metric", "Section"]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without `+Inf`."""


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics that belong together."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SOON = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, MINUTE)
LONG = (5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY)
