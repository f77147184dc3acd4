"""Tasks of the simulator: the true behaviour of applications, and jobs as policies see them."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite

from partita_policies.interference import AMOUNTS, TYPICAL_CACHE, amounts_of
from partita_policies.types import Job, Profile, Step

__all__ = [
    "MEMORY_MARGIN_PERCENT",
    "MIB",
    "Application",
    "Task",
    "allocation_for",
    "check_tasks",
    "mean_step",
    "packed",
    "task_of",
    "with_margin",
]

MIB = 1 << 20
MEMORY_MARGIN_PERCENT = 10
"""Margin above the peak of a profile if a job requests no memory, as in the operator."""


@dataclass(frozen=True, slots=True)
class Application:
    """Behaviour of an application that runs alone on a GPU of speed 1.

    Raises
    ------
    ValueError
        A figure is not finite, negative or out of its range, or there are no steps.
    """

    name: str
    duration: float
    """Seconds of work."""
    steps: tuple[Step, ...]
    """Resource use in equal parts of its work; the same on each of its GPUs."""
    cache: float = TYPICAL_CACHE
    """Sensitivity to sharing the cache, 0 to 1."""

    amounts: "array[float]" = field(init=False, repr=False, compare=False)
    """The amounts of its steps, for the native library."""

    def __post_init__(self) -> None:
        if not (isfinite(self.duration) and self.duration > 0):
            raise ValueError(f"{self.name}: duration: {self.duration}: expected seconds above 0")
        if not 0 <= self.cache <= 1:
            raise ValueError(f"{self.name}: cache: {self.cache}: expected 0 to 1")
        if not self.steps:
            raise ValueError(f"{self.name}: steps: expected at least one")
        amounts = packed(self.steps)
        if not (isfinite(sum(amounts)) and min(amounts) >= 0):
            for index, step in enumerate(self.steps):
                for name, amount in zip(AMOUNTS, amounts_of(step), strict=True):
                    if not (isfinite(amount) and amount >= 0):
                        place = f"{self.name}: steps[{index}].{name}"
                        raise ValueError(f"{place}: {amount}: expected 0 or more")
        object.__setattr__(self, "amounts", amounts)

    @property
    def peak_memory(self) -> int:
        """Largest memory of all steps, bytes."""
        return max(step.memory for step in self.steps)

    def profile(self) -> Profile:
        """Return the profile that an exact measurement of a run would give."""
        return Profile(self.name, self.duration, self.steps)


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its true behaviour."""

    job: Job
    """The job as policies see it: `profile` is the measured one, `submitted` the arrival."""
    truth: Application
    """The true behaviour, which policies do not see."""


def packed(steps: Iterable[Step]) -> "array[float]":
    """Return the amounts of steps, one after the other."""
    return array("d", chain.from_iterable(map(amounts_of, steps)))


def mean_step(application: Application | Profile) -> Step:
    """Return the mean use of an application, with the peak of its memory."""
    columns = zip(*map(amounts_of, application.steps), strict=True)
    gpu, _, core, pcie, bandwidth = (sum(column) / len(column) for column in columns)
    return Step(gpu, application.peak_memory, core, pcie, bandwidth)


def allocation_for(profile: Profile, largest: int = 0) -> int:
    """Return the memory that the operator allocates for a job without a request, bytes.

    Parameters
    ----------
    profile
        Profile of the application.
    largest
        Bytes of the largest GPU, if known. The margin does not exceed it.
    """
    peak = profile.peak_memory
    enough = with_margin(peak)
    if largest >= peak:
        enough = min(enough, largest)
    return -(-enough // MIB) * MIB


def with_margin(peak: int) -> int:
    """Return a measured peak of memory with the margin above it, bytes."""
    return -(-peak * (100 + MEMORY_MARGIN_PERCENT) // 100)


def task_of(
    truth: Application,
    job_id: str,
    *,
    memory: int | None = None,
    memory_limit: int = 0,
    largest: int = 0,
    submitted: float = 0.0,
    namespace: str = "default",
    priority: int = 0,
    lasting: bool = False,
) -> Task:
    """Return a task that runs an application on one GPU.

    Parameters
    ----------
    truth
        The true behaviour.
    job_id
        Id and name of the job.
    memory
        Bytes to allocate; by default the amount that the operator derives from the profile.
    memory_limit
        Bytes that it may use while other jobs do not need them; 0: `memory`.
    largest
        Bytes of the largest GPU, see `allocation_for`.
    submitted
        Seconds from the start of the simulation.
    namespace, priority, lasting
        As in `Job`.
    """
    profile = truth.profile()
    job = Job(
        id=job_id,
        name=job_id,
        namespace=namespace,
        memory=allocation_for(profile, largest) if memory is None else memory,
        memory_limit=memory_limit,
        application=truth.name,
        priority=priority,
        duration=profile.duration,
        submitted=submitted,
        profile=profile,
        lasting=lasting,
    )
    return Task(job, truth)


def check_tasks(tasks: Sequence[Task]) -> None:
    """Check that jobs can be simulated.

    Raises
    ------
    ValueError
        Two jobs have the same id, or an arrival is not a number of at least 0.
    """
    seen: set[str] = set()
    for task in tasks:
        job = task.job
        if job.id in seen:
            raise ValueError(f"job {job.id}: expected ids that differ")
        seen.add(job.id)
        if not (isfinite(job.submitted) and job.submitted >= 0):
            raise ValueError(f"job {job.id}: submitted: {job.submitted}: expected 0 or more")
