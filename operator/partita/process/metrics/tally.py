"""Counts events that the state does not contain: decisions, and steps of attempts and claims."""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.scheduling.cycle_result import CycleResult

__all__ = ["Tally"]

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SOON = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, _MINUTE)
_LONG = (5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY)


class Tally:
    """Counts since the process became the leader.

    Steps that are already in a status when it is first read are not counted: the operator that
    wrote the status has counted them.
    """

    def __init__(self) -> None:
        # Prometheus would store the time when each counter began as one more series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._words: dict[Counter, tuple[Iterable[str], ...]] = {}
        """The values of a counter's labels besides the partition."""
        self._histograms: list[Histogram] = []
        self._partitions: set[str] = set()
        """The partitions of which anything is exported."""
        self._finished = self._counter(
            "partita_jobs_finished_total",
            "Jobs that finished, by result: Succeeded or Failed.",
            result=[phase for phase in Phase if phase.finished],
        )
        self._attempts = self._counter(
            "partita_attempts_total", "Attempts that ended, by outcome.", outcome=Outcome
        )
        self._resizes = self._counter(
            "partita_out_of_memory_resizes_total",
            "Attempts with a larger allocation because the previous one ran out of GPU memory.",
        )
        self.claim_steps = self._counter(
            "partita_claim_steps_total",
            "Steps of ResourceClaims: Allocated, Started (a container ran), Grown (more memory "
            "after it ran out of memory), Released, TakenBack (released before a container ran), "
            "Refused (it cannot be allocated as it is written).",
            step=("Allocated", "Started", "Grown", "Released", "TakenBack", "Refused"),
        )
        self._queued_time = self._histogram(
            "partita_attempt_queue_seconds",
            "Time from when an attempt was queued until its GPU memory was allocated.",
            _SOON + _LONG,
        )
        self._start_time = self._histogram(
            "partita_attempt_pod_start_seconds",
            "Time from the allocation until the container ran.",
            (*_SOON, 5 * _MINUTE, 15 * _MINUTE),
        )
        self._first_use_time = self._histogram(
            "partita_attempt_first_use_seconds",
            "Time from the start of the container until the program used the GPU, if an agent "
            "observed it.",
            (1.0, 2.5, 5.0, 10.0, 30.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR),
        )
        self._run_time = self._histogram(
            "partita_attempt_run_seconds",
            "Time from the start of the container to its end.",
            (1.0, 10.0, _MINUTE, *_LONG, 7 * _DAY),
        )
        self.claim_queued_time = self._histogram(
            "partita_claim_queue_seconds",
            "Time from when a claim was created, or released, until it was allocated.",
            _SOON + _LONG,
        )
        self.claim_start_time = self._histogram(
            "partita_claim_pod_start_seconds",
            "Time from the allocation of a claim until a container of its Pod ran.",
            (*_SOON, 5 * _MINUTE, 15 * _MINUTE),
        )
        self._decision_time = self._histogram(
            "partita_policy_decision_seconds",
            "Decision latency of the policy that decided. The time limit is 2 s.",
            (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
            "policy",
        )

    def decided(self, result: CycleResult) -> None:
        """Count a decision."""
        if result.snapshot is not None and result.answer is not None:
            labels = (result.snapshot.partition, result.answer.policy)
            self._observe(self._decision_time, labels, result.answer.seconds)

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
                self.count(self._resizes, partition)
            last = attempt
        over = old.phase is not None and old.phase.finished
        if status.phase is not None and status.phase.finished and not over:
            self.count(self._finished, partition, status.phase)

    def count(self, counter: Counter, *labels: str) -> None:
        """Count a step; the first label is the partition."""
        self._partitions.add(labels[0])
        counter.labels(*labels).inc()

    def took(
        self, histogram: Histogram, partition: str, since: datetime | None, until: datetime | None
    ) -> None:
        """Count how long a step took, if both its times are known."""
        if since is not None and until is not None:
            # Some times have a resolution of one second, so an end may appear before its start.
            self._observe(histogram, (partition,), max(0.0, (until - since).total_seconds()))

    def export_only(self, partitions: Collection[str]) -> None:
        """Remove deleted partitions, and add the counters of the others, including zeros.

        If a counter is missing before its first event, `increase()` does not count that event.
        """
        for gone in self._partitions.difference(partitions):
            for metric in (*self._words, *self._histograms):
                metric.remove_by_labels({"partition": gone})
        for counter, words in self._words.items():
            for labels in product(partitions, *words):
                counter.labels(*labels)
        self._partitions = set(partitions)

    def _counter(self, name: str, text: str, **words: Iterable[str]) -> Counter:
        counter = Counter(name, text, ("partition", *words), registry=self.registry)
        self._words[counter] = tuple(words.values())
        return counter

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        labels = ("partition", *labels)
        made = Histogram(name, text, labels, buckets=buckets, registry=self.registry)
        self._histograms.append(made)
        return made

    def _step(self, partition: str, old: Attempt, new: Attempt) -> None:
        if old.booked_time is None:
            self.took(self._queued_time, partition, new.queued_time, new.booked_time)
        if old.start_time is None:
            self.took(self._start_time, partition, new.booked_time, new.start_time)
        if old.first_use_time is None:
            self.took(self._first_use_time, partition, new.start_time, new.first_use_time)
        if old.outcome is None and new.outcome is not None:
            self.took(self._run_time, partition, new.start_time, new.end_time)
            self.count(self._attempts, partition, new.outcome)

    def _observe(self, histogram: Histogram, labels: tuple[str, ...], value: float) -> None:
        self._partitions.add(labels[0])
        histogram.labels(*labels).observe(value)


def _is_resized(before: Attempt, after: Attempt) -> bool:
    old, new = ((a.memory, a.memory_limit or a.memory) for a in (before, after))
    return before.outcome is Outcome.OUT_OF_MEMORY and (new[0] > old[0] or new[1] > old[1])
