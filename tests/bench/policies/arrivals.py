"""When jobs arrive: at a rate that stays, that follows the day, or in bursts.

All have the same mean rate. The shapes are assumptions: what a day does to a cluster is taken as a
sine of which the peak is four times the trough, and bursts as groups of ten jobs on average, such
as a sweep of hyperparameters submits.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import pi, sin
from random import Random

__all__ = ["PATTERNS", "times"]

_SWING = 0.6
"""Amplitude of the day, as a share of the mean rate."""
_DAYS = 3
"""Days until as many jobs as asked for have arrived."""
_BURST = 10
"""Mean jobs of a burst; their number is geometric."""


def times(pattern: str, count: int, interval: float, seed: int) -> list[float]:
    """Return when jobs arrive, seconds, ascending.

    Parameters
    ----------
    pattern
        One of `PATTERNS`.
    count
        Number of jobs.
    interval
        Mean seconds between two of them; 0 if all arrive at once.
    seed
        The same seed gives the same times.
    """
    if not interval:
        return [0.0] * count
    random = Random(f"arrivals {pattern} {seed}")
    return list(islice(PATTERNS[pattern](random, interval, count * interval), count))


def _poisson(random: Random, interval: float, _: float) -> Iterator[float]:
    now = 0.0
    while True:
        now += random.expovariate(1 / interval)
        yield now


def _diurnal(random: Random, interval: float, length: float) -> Iterator[float]:
    """Thin a Poisson process of the peak's rate (Lewis and Shedler, 1979)."""
    day = length / _DAYS
    for now in _poisson(random, interval / (1 + _SWING), length):
        if random.random() < (1 + _SWING * sin(2 * pi * now / day)) / (1 + _SWING):
            yield now


def _bursts(random: Random, interval: float, length: float) -> Iterator[float]:
    for now in _poisson(random, interval * _BURST, length):
        yield now
        while random.random() < 1 - 1 / _BURST:
            yield now


PATTERNS: Mapping[str, Callable[[Random, float, float], Iterator[float]]] = {
    "poisson": _poisson,
    "diurnal": _diurnal,
    "bursts": _bursts,
}
