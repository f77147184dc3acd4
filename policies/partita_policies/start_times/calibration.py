"""Corrects intervals by what came, so that they hold with the probability that they state.

Each end of an interval is moved by a quantile of how far starts lay outside it, in terms of the
predicted wait and of the width: conformalized quantile regression (Romano, Patterson and Candès,
NeurIPS 2019). The level of that quantile follows the misses, so the intervals hold in the long run
even if the partition changes: adaptive conformal inference (Gibbs and Candès, NeurIPS 2021).

State is in memory alone: after a restart of the operator the first intervals are uncorrected.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil

from partita_policies.start_times.futures import PROBABILITY, StartInterval

__all__ = ["Accuracy", "Calibration"]

_SCORES = 300
"""Scores of each end that count: about those of the recent past."""
_LEAST_SCORES = 30
"""With fewer, an interval is not corrected. An assumption: the fifth percentile of fewer is their
minimum."""
_STEP = 0.01
"""By how much a miss moves the level: between the 0.005 of Gibbs and Candès and a faster answer."""
_PENDING = 10_000
"""Predictions that wait for their start."""
_SHORTEST = 1.0
"""Seconds that are added to the scale of errors."""


@dataclass(slots=True)
class _End:
    """One end of the intervals."""

    miss: float
    """Share of the starts that shall lie beyond it."""
    level: float = 0.0
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=_SCORES))

    def __post_init__(self) -> None:
        self.level = self.miss

    @property
    def margin(self) -> float:
        """By how much it is moved outwards, in terms of the scale."""
        if len(self.scores) < _LEAST_SCORES:
            return 0.0
        ordered = sorted(self.scores)
        rank = ceil((len(ordered) + 1) * (1 - self.level))
        return ordered[min(max(rank, 1), len(ordered)) - 1]

    def learn(self, score: float, *, missed: bool) -> None:
        self.scores.append(score)
        self.level += _STEP * (self.miss - missed)


@dataclass(frozen=True, slots=True)
class _Prediction:
    time: float
    sampled: StartInterval
    stated: StartInterval

    @property
    def scale(self) -> float:
        return _scale(self.time, self.sampled)


@dataclass(slots=True)
class Accuracy:
    """How well the predictions of a partition came true."""

    starts: int = 0
    held: int = 0
    """Starts within their interval."""
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_SCORES))
    """Seconds from the middle of the interval to the start, of the last ones."""
    widths: deque[float] = field(default_factory=lambda: deque(maxlen=_SCORES))
    """Seconds."""


class Calibration:
    """The calibration of one partition.

    Parameters
    ----------
    probability
        With which intervals shall hold.
    """

    def __init__(self, probability: float = PROBABILITY) -> None:
        tail = (1 - probability) / 2
        self._early, self._late = _End(tail), _End(tail)
        self._pending: dict[str, _Prediction] = {}
        self.accuracy = Accuracy()

    def corrected(self, time: float, sampled: StartInterval) -> StartInterval:
        """Return an interval that was predicted at a time as it is to be stated."""
        scale = _scale(time, sampled)
        earliest = max(sampled.earliest - self._early.margin * scale, time)
        latest = max(sampled.latest + self._late.margin * scale, earliest)
        return StartInterval(earliest, min(max(sampled.middle, earliest), latest), latest)

    def predict(self, job_id: str, time: float, sampled: StartInterval) -> StartInterval:
        """Return the interval to state; the first one of each job is compared with its start."""
        stated = self.corrected(time, sampled)
        if job_id not in self._pending and len(self._pending) < _PENDING:
            self._pending[job_id] = _Prediction(time, sampled, stated)
        return stated

    def started(self, job_id: str, time: float) -> StartInterval | None:
        """Learn from the start of a job; return what was stated about it first, if anything."""
        made = self._pending.pop(job_id, None)
        if made is None:
            return None
        stated, sampled = made.stated, made.sampled
        self._early.learn((sampled.earliest - time) / made.scale, missed=time < stated.earliest)
        self._late.learn((time - sampled.latest) / made.scale, missed=time > stated.latest)
        self.accuracy.starts += 1
        self.accuracy.held += stated.earliest <= time <= stated.latest
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
