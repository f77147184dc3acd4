"""Metrics whose values are computed at each scrape, as prometheus_client's families."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

__all__ = ["counter", "gauge"]

Labels = TypeVar("Labels", bound=tuple[str, ...])


def gauge(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Labels, float]
) -> GaugeMetricFamily:
    """Return a gauge with its values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for its, value in values.items():
        family.add_metric(its, value)
    return family


def counter(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Labels, float]
) -> CounterMetricFamily:
    """Return a counter with its values."""
    family = CounterMetricFamily(name, text, labels=labels)
    for its, value in values.items():
        family.add_metric(its, value)
    return family
