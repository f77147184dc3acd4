"""The simulated time of a demo."""

from dataclasses import dataclass
from datetime import datetime

__all__ = ["DemoClock"]


@dataclass(slots=True)
class DemoClock:
    """The simulated time of a demo."""

    speed: float
    """Simulated seconds in one second."""
    began: datetime | None = None
    """Time of the first submission."""

    def seconds(self, start: datetime | None, end: datetime | None) -> float:
        """Return the simulated seconds between two times; 0 if one is missing."""
        if start is None or end is None:
            return 0.0
        return max(0.0, (end - start).total_seconds()) * self.speed

    def at(self, now: datetime) -> float:
        """Return the simulated seconds since the first submission."""
        return self.seconds(self.began, now)
