"""Selection of jobs that should share a GPU, and the rules for adding one more job.

Co-location of a job with others is beneficial if they do more work in a second than without it,
and if all finish no later than if the job ran after the others. Beside lasting jobs alone, which
it cannot wait for, co-location is always beneficial.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from partita_policies.forecast import Forecast, JobForecast, outlook_of
from partita_policies.types import GPU, Job, RunningJob, Sharing

__all__ = ["Colocation", "JoinRule", "Value"]

_GAIN = 0.02
"""Minimum work per second that a job must add. Less is within the error of any model."""


class JoinRule(IntEnum):
    """Rule for choosing the next job of a GPU among the beneficial ones."""

    LONGEST = 0
    FULLEST = 1
    FASTEST = 2


class Value(NamedTuple):
    """Effect of adding a job to others on a GPU."""

    work: float
    """Increase of the work per second of all jobs."""
    use: float
    """The same, with each job weighted by its share of its scarcest resource."""


class Colocation:
    """Predicts which jobs should share a GPU, for GPUs of one type.

    Parameters
    ----------
    jobs
        One job of each class; a class is identified by its index here.
    typical
        Seconds of a job of unknown duration.
    window
        Maximum number of fitting classes compared for a GPU, from the front of the queue.
    """

    def __init__(
        self,
        gpu: GPU,
        sharing: Sharing,
        jobs: Sequence[Job | RunningJob],
        *,
        typical: float,
        window: int,
    ) -> None:
        self.gpu = gpu
        self.forecast = Forecast(sharing, [outlook_of(job, gpu, typical) for job in jobs])
        self.exclusive = sharing is Sharing.EXCLUSIVE
        self._window = window
        self._allowed = sum(
            1 << job_class
            for job_class, job in enumerate(jobs)
            if not isinstance(job, Job) or not job.products or gpu.product in job.products
        )
        self._scarce = [_scarcest(outlook, gpu) for outlook in self.forecast.outlooks]
        self._values: dict[tuple[tuple[int, ...], int], Value | None] = {}
        self._choices: dict[tuple[tuple[int, ...], int, JoinRule], int] = {}

    def choice(self, classes: tuple[int, ...], mask: int, rule: JoinRule) -> int:
        """Return the class that a rule chooses next for a GPU; -1 for none.

        Parameters
        ----------
        classes
            Classes of the jobs on the GPU, ascending.
        mask
            The waiting classes, as bits.
        """
        key = (classes, mask, rule)
        found = self._choices.get(key)
        if found is None:
            scored = [
                (_score(value, self.forecast.durations[job_class], rule), -job_class)
                for job_class, value in self._candidates(classes, mask)
            ]
            scored.sort(reverse=True)
            good = (
                -job_class
                for _, job_class in scored
                if self.forecast.is_beneficial(classes, -job_class)
            )
            found = self._choices[key] = next(good, -1)
        return found

    def options(
        self, classes: tuple[int, ...], mask: int, waiting: Sequence[int], most: int
    ) -> list[tuple[int, ...]]:
        """Return combinations of jobs to start beside others, the best use of the GPU first."""
        found: dict[tuple[int, ...], float] = {}
        level: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        while level:
            larger: dict[tuple[int, ...], float] = {}
            for added, use in level:
                beside = tuple(sorted((*classes, *added)))
                for job_class, value in self._candidates(beside, mask):
                    if added.count(job_class) < waiting[job_class] and self.forecast.is_beneficial(
                        beside, job_class
                    ):
                        more = tuple(sorted((*added, job_class)))
                        larger[more] = max(larger.get(more, 0.0), use + value.use)
            level = sorted(larger.items(), key=lambda one: (-one[1], one[0]))[:most]
            found |= dict(level)
        best = sorted(found, key=lambda added: (-found[added], added))[:most]
        return [*best, ()] if self._some_end(classes) or not best else best

    def _some_end(self, classes: tuple[int, ...]) -> bool:
        return not all(self.forecast.lasting[job_class] for job_class in classes)

    def _candidates(self, classes: tuple[int, ...], mask: int) -> Iterator[tuple[int, Value]]:
        """Yield the classes that fit and add work, in queue order."""
        mask &= self._allowed
        left, shared = self._window, self._some_end(classes)
        while mask and left:
            low = mask & -mask
            mask ^= low
            job_class = low.bit_length() - 1
            key = (classes, job_class)
            if key not in self._values:
                self._values[key] = self._value(classes, job_class)
            value = self._values[key]
            if value is not None:
                left -= 1
                if not shared or value.work >= _GAIN:
                    yield job_class, value

    def _value(self, classes: tuple[int, ...], job_class: int) -> Value | None:
        """Return the effect of adding a job to others; None if it does not fit beside them."""
        if not self._fits(classes, job_class):
            return None
        self.forecast.work += 1
        together = list(classes)
        insort(together, job_class)
        (work, use), (had, used) = self._sums(tuple(together)), self._sums(classes)
        return Value(work - had, use - used)

    def _fits(self, classes: tuple[int, ...], job_class: int) -> bool:
        gpu, outlooks = self.gpu, self.forecast.outlooks
        one = outlooks[job_class]
        memory, slots, clients = one.memory, one.slots, one.clients
        if classes and (self.exclusive or one.alone):
            return False
        for place in classes:
            other = outlooks[place]
            if other.alone:
                return False
            memory += other.memory
            slots += other.slots
            clients += other.clients
        return memory <= gpu.memory and slots <= gpu.max_jobs and clients <= gpu.max_clients

    def _sums(self, classes: tuple[int, ...]) -> tuple[float, float]:
        """Return the work per second of jobs, and the same weighted by scarcity."""
        rates = self.forecast.rates(classes)
        scarce = self._scarce
        return sum(rates), sum(
            [rates[i] * scarce[job_class] for i, job_class in enumerate(classes)]
        )


def _score(value: Value, seconds: float, rule: JoinRule) -> tuple[float, float]:
    match rule:
        case JoinRule.LONGEST:
            return (seconds, value.use)
        case JoinRule.FULLEST:
            return (value.use, seconds)
        case JoinRule.FASTEST:
            return (value.work, seconds)


def _scarcest(outlook: JobForecast, gpu: GPU) -> float:
    """Return the largest share that a job takes of any resource of a GPU."""
    if outlook.alone:
        return 1.0
    memory = outlook.memory / gpu.memory if gpu.memory else 0.0
    places = max(outlook.slots / gpu.max_jobs, outlook.clients / gpu.max_clients)
    return min(1.0, max(outlook.mean.sm, outlook.mean.pcie, memory, places))
