"""Times in which this process does not do something again."""

from datetime import datetime, timedelta
from typing import NamedTuple, Self

__all__ = ["Pause"]


class Pause(NamedTuple):
    """A time in which something is not done again."""

    since: datetime
    until: datetime

    @classmethod
    def of(cls, now: datetime, seconds: float) -> Self:
        """Return one of some seconds that begins now."""
        return cls(now, now + timedelta(seconds=seconds))

    @classmethod
    def around(cls, time: datetime, span: timedelta) -> Self:
        """Return one until some time after what another clock says, which may be ahead as much."""
        return cls(time - span, time + span)

    def holds(self, now: datetime) -> bool:
        """Return whether it goes on. It ends, too, if the clock was set back before its begin."""
        return self.since <= now < self.until
