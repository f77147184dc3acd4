"""Counts events that the state does not contain: decisions, and steps of attempts."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, MutableMapping
from datetime import datetime
from typing import Any

from partita.decide.cycle_result import CycleResult
from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.operator.metrics import claim_definitions as c
from partita.operator.metrics import definitions as d
from partita.operator.metrics.definitions import Metric

__all__ = ["Distribution", "Tally"]

Labels = tuple[str, ...]

_WORDS: dict[Metric, tuple[Labels, ...]] = {
    d.FINISHED: tuple((phase.value,) for phase in Phase if phase.finished),
    d.ATTEMPTS: tuple((outcome.value,) for outcome in Outcome),
    d.RESIZES: ((),),
    c.STEPS: tuple((step,) for step in c.STEP_WORDS),
}
"""The counters, with the values of their labels besides the partition."""


class Distribution:
    """A histogram of values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Counts by bucket, not cumulative. The last one counts values above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Tally:
    """Counts since the process became the leader.

    Steps that are already in a status when it is first read are not counted: the operator that
    wrote the status has counted them.
    """

    def __init__(self) -> None:
        self.counts: dict[Metric, Counter[Labels]] = {metric: Counter() for metric in _WORDS}
        self.distributions: dict[Metric, dict[Labels, Distribution]] = {
            metric: {}
            for metric in (
                d.QUEUED_TIME,
                d.START_TIME,
                d.FIRST_USE_TIME,
                d.RUN_TIME,
                d.DECISION_TIME,
                c.QUEUED_TIME,
                c.START_TIME,
            )
        }

    def decided(self, result: CycleResult) -> None:
        """Count a decision."""
        if result.snapshot is not None and result.answer is not None:
            labels = (result.snapshot.partition, result.answer.policy)
            self._observe(d.DECISION_TIME, labels, result.answer.seconds)

    def written(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        """Count the new steps in a job's status, after it was written.

        Parameters
        ----------
        job
            The job with its previous status.
        """
        partition, old = job.spec.partition, job.status
        known = {attempt.number: attempt for attempt in old.attempts}
        last: Attempt | None = None
        for attempt in status.attempts:
            before = known.get(attempt.number)
            self._step(partition, before or Attempt(number=attempt.number), attempt)
            if before is None and last is not None and _is_resized(last, attempt):
                self.counts[d.RESIZES][partition,] += 1
            last = attempt
        over = old.phase is not None and old.phase.finished
        if status.phase is not None and status.phase.finished and not over:
            self.counts[d.FINISHED][partition, status.phase.value] += 1

    def counted(self, partition: str) -> Iterator[tuple[Metric, Labels, int]]:
        """Yield every count of a partition, including zeros.

        If a counter is missing before its first event, `increase()` does not count that event.
        """
        for metric, words in _WORDS.items():
            for word in words:
                labels = (partition, *word)
                yield metric, labels, self.counts[metric][labels]

    def keep_only(self, partitions: Collection[str]) -> None:
        """Remove the counts of deleted partitions."""
        every: tuple[MutableMapping[Labels, Any], ...]
        every = (*self.counts.values(), *self.distributions.values())
        for series in every:
            for labels in [labels for labels in series if labels[0] not in partitions]:
                del series[labels]

    def _step(self, partition: str, old: Attempt, new: Attempt) -> None:
        if old.booked_time is None:
            self.took(d.QUEUED_TIME, partition, new.queued_time, new.booked_time)
        if old.start_time is None:
            self.took(d.START_TIME, partition, new.booked_time, new.start_time)
        if old.first_use_time is None:
            self.took(d.FIRST_USE_TIME, partition, new.start_time, new.first_use_time)
        if old.outcome is None and new.outcome is not None:
            self.took(d.RUN_TIME, partition, new.start_time, new.end_time)
            self.counts[d.ATTEMPTS][partition, new.outcome.value] += 1

    def took(
        self, metric: Metric, partition: str, since: datetime | None, until: datetime | None
    ) -> None:
        """Count how long a step took, if both its times are known."""
        if since is not None and until is not None:
            # Some times have a resolution of one second, so an end may appear before its start.
            self._observe(metric, (partition,), max(0.0, (until - since).total_seconds()))

    def _observe(self, metric: Metric, labels: Labels, value: float) -> None:
        series = self.distributions[metric]
        if labels not in series:
            series[labels] = Distribution(metric.buckets)
        series[labels].observe(value)


def _is_resized(before: Attempt, after: Attempt) -> bool:
    old, new = ((a.memory, a.memory_limit or a.memory) for a in (before, after))
    return before.outcome is Outcome.OUT_OF_MEMORY and (new[0] > old[0] or new[1] > old[1])
