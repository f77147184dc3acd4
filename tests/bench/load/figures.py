"""What a scene measured, and whether it is as good as promised."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Figure", "LoadError", "of_samples"]


class LoadError(Exception):
    """A scene did not come to its end; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    Attributes
    ----------
    most
        The target that it must not exceed; None where nothing is promised.
    """

    name: str
    value: float
    unit: str
    most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.most is None else self.value <= self.most


def of_samples(
    name: str, samples: Sequence[float], unit: str, most: float | None = None
) -> list[Figure]:
    """Return median and slowest; the target holds for the slowest."""
    return [
        Figure(f"{name}: median of {len(samples)}", statistics.median(samples), unit),
        Figure(f"{name}: most", max(samples), unit, most),
    ]
