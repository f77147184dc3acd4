"""Corrects intervals by what came, so that they hold with the probability that they state.

Both ends of an interval are moved outwards by a quantile of how far starts lay outside theirs, in
terms of the predicted wait and of the width; starts well within it count as negative, so that
intervals that hold too often get narrower: conformalized quantile regression (Romano, Patterson and
Candès, NeurIPS 2019). The level of that quantile follows the misses, so the intervals hold in the
long run even if the partition changes: adaptive conformal inference (Gibbs and Candès, NeurIPS
2021). One score counts both ends: with a quantile of each, an end that cannot be missed, because
nothing starts before now, would leave its share of the misses unused.

State is in memory alone: after a restart of the operator the first intervals are uncorrected.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from partita_policies.start_times.futures import FARTHEST, PROBABILITY, StartInterval

__all__ = ["Accuracy", "Calibration"]

_SCORES = 300
"""Scores that count: those of the recent past."""
_STEP = 0.01
"""By how much a miss moves the level: between the 0.005 of Gibbs and Candès and a faster answer."""
_PENDING = 10_000
"""Predictions that wait for their start."""
_MISS = 1 - PROBABILITY
_SHORTEST = 1.0
"""Seconds that are added to the scale of errors."""


@dataclass(frozen=True, slots=True)
class _Prediction:
    time: float
    sampled: StartInterval
    stated: StartInterval
    corrected: bool

    def score(self, start: float) -> float:
        """Return how far a start lies outside, in terms of the scale; negative if inside."""
        outside = max(self.sampled.earliest - start, start - self.sampled.latest)
        return outside / _scale(self.time, self.sampled)


@dataclass(slots=True)
class Accuracy:
    """How well the predictions of a partition came true."""

    starts: int = 0
    held: int = 0
    """Starts within their interval."""
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_SCORES))
    """Seconds from the middle of the interval to the start, of the last ones."""
    widths: deque[float] = field(default_factory=lambda: deque(maxlen=_SCORES))
    """Seconds, of the last ones."""

    @property
    def error(self) -> float:
        """The median of `errors`; 0 before the first start."""
        return median(self.errors or (0.0,))

    @property
    def width(self) -> float:
        """The median of `widths`; 0 before the first start."""
        return median(self.widths or (0.0,))


class Calibration:
    """The calibration of one partition."""

    def __init__(self) -> None:
        self._level = _MISS
        self._scores: deque[float] = deque(maxlen=_SCORES)
        self._pending: dict[str, _Prediction] = {}
        self.accuracy = Accuracy()

    def corrected(self, time: float, sampled: StartInterval) -> StartInterval:
        """Return an interval that was predicted at a time as it is to be stated."""
        margin = self._margin * _scale(time, sampled)
        centre = max((sampled.earliest + sampled.latest) / 2, time)
        earliest = min(max(sampled.earliest - margin, time), centre)
        latest = min(max(sampled.latest + margin, centre), time + FARTHEST)
        return StartInterval(earliest, min(max(sampled.middle, earliest), latest), latest)

    @property
    def _corrects(self) -> bool:
        """Whether there are enough scores for the quantile."""
        count = len(self._scores)
        return ceil((count + 1) * (1 - _MISS)) <= count

    @property
    def _margin(self) -> float:
        """By how much the ends are moved outwards, in terms of the scale."""
        if not self._corrects:
            return 0.0
        count = len(self._scores)
        rank = ceil((count + 1) * (1 - self._level))
        return sorted(self._scores)[min(max(rank, 1), count) - 1]

    def predict(self, job_id: str, time: float, sampled: StartInterval) -> StartInterval:
        """Return the interval to state; the first one of each job is compared with its start."""
        stated = self.corrected(time, sampled)
        if job_id not in self._pending and len(self._pending) < _PENDING:
            self._pending[job_id] = _Prediction(time, sampled, stated, self._corrects)
        return stated

    def started(self, job_id: str, time: float) -> StartInterval | None:
        """Learn from the start of a job; return what was stated about it first, if anything."""
        made = self._pending.pop(job_id, None)
        if made is None:
            return None
        stated = made.stated
        held = stated.earliest <= time <= stated.latest
        self._scores.append(made.score(time))
        if made.corrected:  # what was stated before says nothing about the level
            self._level += _STEP * (_MISS - (not held))
        self.accuracy.starts += 1
        self.accuracy.held += held
        self.accuracy.errors.append(abs(time - (stated.earliest + stated.latest) / 2))
        self.accuracy.widths.append(stated.latest - stated.earliest)
        return stated

    def keep(self, waiting: Collection[str]) -> None:
        """Forget the predictions of jobs that no longer wait and have not started."""
        for job_id in self._pending.keys() - waiting:
            del self._pending[job_id]


def _scale(time: float, sampled: StartInterval) -> float:
    """Return the seconds in terms of which errors are: a long or unsure wait is wrong by more."""
    return max(sampled.middle - time, 0.0) + sampled.latest - sampled.earliest + _SHORTEST
