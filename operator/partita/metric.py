"""Metrics whose values are computed at each scrape, as prometheus_client's families."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

__all__ = ["counter", "gauge"]

Labels = TypeVar("Labels", bound=tuple[str, ...])
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def gauge(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Labels, float]
) -> GaugeMetricFamily:
    """Return a gauge with its values."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Labels, float]
) -> CounterMetricFamily:
    """Return a counter with its values."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: Family, values: Mapping[Labels, float]) -> Family:
    for its, value in values.items():
        family.add_metric(its, value)
    return family
