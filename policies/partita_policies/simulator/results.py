"""Result of a simulation: figures, attempts, and the timeline for charts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import NamedTuple

from partita_policies.types import GPU, Job

__all__ = [
    "JobResult",
    "Reading",
    "Result",
    "SimulatedAttempt",
    "SimulatedOutcome",
    "job_result",
]


class SimulatedOutcome(StrEnum):
    """How an attempt or a job ended."""

    FINISHED = "Finished"
    RUNNING = "Running"
    """A lasting job that still runs at the end of the simulation."""
    OUT_OF_MEMORY = "OutOfMemory"
    """Killed; a job ends in this way if it needs more memory than any GPU has."""
    RECLAIMED = "Reclaimed"
    """Killed: the memory that it used or requested above its guarantee was needed by other jobs."""
    NEVER_FITS = "NeverFits"
    """Rejected on arrival: the job does not fit on any GPU, even an empty one."""
    NEVER_PLACED = "NeverPlaced"
    """The job was still waiting at the end of the simulation."""


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One start of a job."""

    job: str
    gpus: tuple[str, ...]
    start: float
    end: float
    outcome: SimulatedOutcome
    memory: int
    """Bytes allocated on each of the GPUs."""
    alone: float
    """Seconds of the whole job alone on these GPUs; of a lasting job, of its work so far."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job."""

    job: str
    application: str
    submitted: float
    outcome: SimulatedOutcome
    start: float | None = None
    """Start of the last attempt; None if the job never ran."""
    finish: float | None = None
    """Time at which the job finished; None if it did not finish."""
    slowdown: float | None = None
    """Run time of the finished or running attempt, relative to that alone on the same GPUs."""
    attempts: int = 0

    @property
    def wait(self) -> float | None:
        """Seconds from the arrival to the start of the last attempt, with failed attempts."""
        return None if self.start is None else self.start - self.submitted


def job_result(
    job: Job, attempts: Sequence[SimulatedAttempt], lost: SimulatedOutcome | None
) -> JobResult:
    """Return the result of a job.

    Parameters
    ----------
    attempts
        Its attempts, the last one last.
    lost
        Why it will never finish; None if that is not known.
    """
    outcome = lost or SimulatedOutcome.NEVER_PLACED
    start = finish = slowdown = None
    if attempts:
        last = attempts[-1]
        start = last.start
        if last.outcome in (SimulatedOutcome.FINISHED, SimulatedOutcome.RUNNING):
            outcome = last.outcome
            slowdown = (last.end - last.start) / last.alone if last.alone else None
        if outcome is SimulatedOutcome.FINISHED:
            finish = last.end
    return JobResult(
        job.id, job.application, job.submitted, outcome, start, finish, slowdown, len(attempts)
    )


class Reading(NamedTuple):
    """State of a GPU from a point in time until the next reading."""

    time: float
    busy: float
    """Share of the time in which a kernel runs, 0 to 1."""
    memory: int
    """Bytes in actual use."""


@dataclass(frozen=True)
class Result:
    """Result of a simulation. Times are seconds from its start."""

    gpus: tuple[GPU, ...]
    jobs: tuple[JobResult, ...]
    """In the order of the input."""
    attempts: tuple[SimulatedAttempt, ...]
    """In the order of their ends."""
    timeline: dict[str, tuple[Reading, ...]]
    """By GPU."""
    decisions: int = 0
    rejected: int = 0
    """Placements that were not applied because they exceed a limit."""
    seconds: tuple[float, ...] = field(default=(), compare=False)
    """Latency of each decision."""

    @cached_property
    def start(self) -> float:
        """Time of the first arrival."""
        return min((job.submitted for job in self.jobs), default=0.0)

    @cached_property
    def end(self) -> float:
        """End of the last attempt."""
        return max((attempt.end for attempt in self.attempts), default=self.start)

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the end of the last attempt.

        Infinite if a job was left to wait for ever: a policy that starts nothing is not fast.
        """
        return inf if self._starves else self.end - self.start

    @cached_property
    def gpu_utilisation(self) -> float:
        """Percent of the time until the last end in which a kernel ran, averaged over the GPUs."""
        return self._percent(busy=True)

    @cached_property
    def memory_utilisation(self) -> float:
        """Percent of the memory of all GPUs in use, averaged over the time until the last end."""
        return self._percent(busy=False)

    @cached_property
    def finished(self) -> tuple[JobResult, ...]:
        """The jobs that finished."""
        return tuple(job for job in self.jobs if job.outcome is SimulatedOutcome.FINISHED)

    @cached_property
    def services(self) -> tuple[JobResult, ...]:
        """The lasting jobs that still run."""
        return tuple(job for job in self.jobs if job.outcome is SimulatedOutcome.RUNNING)

    @property
    def kills(self) -> int:
        """Number of attempts that ran out of memory."""
        return sum(attempt.outcome is SimulatedOutcome.OUT_OF_MEMORY for attempt in self.attempts)

    @property
    def reclaims(self) -> int:
        """Number of attempts whose memory above the guarantee was needed by other jobs."""
        return sum(attempt.outcome is SimulatedOutcome.RECLAIMED for attempt in self.attempts)

    @property
    def mean_completion(self) -> float:
        """Mean seconds from arrival to finish of the finished jobs; 0 without any.

        Infinite if a job was left to wait for ever.
        """
        if self._starves:
            return inf
        times = [job.finish - job.submitted for job in self.finished if job.finish is not None]
        return sum(times) / len(times) if times else 0.0

    def unslowed(self, tolerance: float) -> int:
        """Count the jobs that finished at most this much slower than alone (0.05: 5 %)."""
        most = 1 + tolerance
        return sum(job.slowdown is not None and job.slowdown <= most for job in self.finished)

    def waiting(self) -> tuple[tuple[float, int], ...]:
        """Return the number of waiting jobs after each change of it, with the time."""
        changes: dict[float, int] = {}
        for job in self.jobs:
            if job.outcome is not SimulatedOutcome.NEVER_FITS:
                changes[job.submitted] = changes.get(job.submitted, 0) + 1
        given_up = {job.job: job.attempts for job in self.jobs if _gave_up(job)}
        ended: dict[str, int] = {}
        for attempt in self.attempts:
            changes[attempt.start] = changes.get(attempt.start, 0) - 1
            ended[attempt.job] = ended.get(attempt.job, 0) + 1
            if attempt.outcome not in (SimulatedOutcome.FINISHED, SimulatedOutcome.RUNNING) and (
                given_up.get(attempt.job) != ended[attempt.job]
            ):
                changes[attempt.end] = changes.get(attempt.end, 0) + 1
        count, counts = 0, []
        for time in sorted(changes):
            if changes[time]:
                count += changes[time]
                counts.append((time, count))
        return tuple(counts)

    @property
    def _starves(self) -> bool:
        return any(job.outcome is SimulatedOutcome.NEVER_PLACED for job in self.jobs)

    def _percent(self, *, busy: bool) -> float:
        used = whole = 0.0
        for gpu in self.gpus:
            whole += (1 if busy else gpu.memory) * (self.end - self.start)
            readings = self.timeline.get(gpu.id, ())
            ends = [reading.time for reading in readings[1:]] + [self.end]
            for reading, end in zip(readings, ends, strict=False):
                used += (reading.busy if busy else reading.memory) * (end - reading.time)
        return 100 * used / whole if whole else 0.0


def _gave_up(job: JobResult) -> bool:
    return job.outcome is SimulatedOutcome.OUT_OF_MEMORY
