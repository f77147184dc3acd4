"""The mean of a measured value over the last minute."""

from math import exp
from typing import Final

__all__ = ["MovingMean"]

_DECAY: Final = 30.0
"""Seconds after which a value counts 1/e as much: the last minute counts 86 %. The status is
written once a minute, so a shorter time would make it depend on chance."""
_FIRST: Final = 0.1
"""Seconds for which the first value counts."""


class MovingMean:
    """A mean in which each value counts for the time since the one before, and older ones less."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._weight = 0.0
        self._at: float | None = None

    def add(self, at: float, value: float | None) -> None:
        """Add a value; None if it was not measured. `at` in seconds."""
        if value is None:
            return
        kept = exp(-(_FIRST if self._at is None else max(0.0, at - self._at)) / _DECAY)
        self._at = at
        self._sum = self._sum * kept + value * (1 - kept)
        self._weight = self._weight * kept + (1 - kept)

    @property
    def value(self) -> float | None:
        """The mean; None if nothing was measured."""
        return self._sum / self._weight if self._weight else None
