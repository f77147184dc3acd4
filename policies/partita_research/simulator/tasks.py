"""What runs in the simulator: applications as they really are, and jobs as policies see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.types import Job, Profile, Step

__all__ = [
    "MEMORY_MARGIN_PERCENT",
    "MIB",
    "Application",
    "Task",
    "allocation_for",
    "check_tasks",
    "task_of",
]

MIB = 1 << 20
MEMORY_MARGIN_PERCENT = 10
"""Added to the peak of a profile where a job names no memory: what the operator does."""


@dataclass(frozen=True, slots=True)
class Application:
    """What a run of an application is, when it has a GPU of speed 1 to itself.

    Raises
    ------
    ValueError
        A figure is not finite, negative or out of its range, or there are no steps.
    """

    name: str
    duration: float
    """Seconds of work."""
    steps: tuple[Step, ...]
    """What it uses in each of as many equal parts of its work; the same on each of its GPUs."""
    cache: float = TYPICAL_CACHE
    """Sensitivity to the cache being shared, 0 to 1."""

    def __post_init__(self) -> None:
        if not (isfinite(self.duration) and self.duration > 0):
            raise ValueError(f"{self.name}: duration: {self.duration}: expected seconds above 0")
        if not 0 <= self.cache <= 1:
            raise ValueError(f"{self.name}: cache: {self.cache}: expected 0 to 1")
        if not self.steps:
            raise ValueError(f"{self.name}: steps: expected at least one")
        for index, step in enumerate(self.steps):
            for what, amount in (
                ("gpu", step.gpu),
                ("memory", step.memory),
                ("core", step.core),
                ("pcie", step.pcie),
            ):
                if not (isfinite(amount) and amount >= 0):
                    raise ValueError(
                        f"{self.name}: steps[{index}].{what}: {amount}: expected 0 or more"
                    )

    @property
    def peak_memory(self) -> int:
        """The largest memory of any step, bytes."""
        return max(step.memory for step in self.steps)

    def profile(self) -> Profile:
        """Return what an exact measurement of a run would say."""
        return Profile(self.name, self.duration, self.steps)


@dataclass(frozen=True, slots=True)
class Task:
    """A job with what it really does."""

    job: Job
    """All that a policy sees. Its `profile` is the measured one, `submitted` its arrival."""
    truth: Application
    """What the simulator alone knows."""


def allocation_for(profile: Profile, largest: int = 0) -> int:
    """Return the memory that the operator allocates for a job that names none, bytes.

    Parameters
    ----------
    profile
        What is known of the application.
    largest
        Bytes of the largest GPU, where known: the margin keeps no job from it.
    """
    peak = profile.peak_memory
    with_margin = -(-peak * (100 + MEMORY_MARGIN_PERCENT) // 100)
    if largest >= peak:
        with_margin = min(with_margin, largest)
    return -(-with_margin // MIB) * MIB


def task_of(
    truth: Application,
    job_id: str,
    *,
    measured: Profile | None = None,
    memory: int | None = None,
    largest: int = 0,
    submitted: float = 0.0,
    namespace: str = "default",
    priority: int = 0,
) -> Task:
    """Make a job of one GPU that runs an application.

    Parameters
    ----------
    truth
        What it really does.
    job_id
        Its id and name.
    measured
        What the policies are told; by default the truth.
    memory
        Bytes to allocate; by default what the operator would take from the profile.
    largest
        Bytes of the largest GPU, see `allocation_for`.
    submitted
        Seconds from the start of the simulation.
    namespace, priority
        As in `Job`.
    """
    profile = truth.profile() if measured is None else measured
    job = Job(
        id=job_id,
        name=job_id,
        namespace=namespace,
        memory=allocation_for(profile, largest) if memory is None else memory,
        application=truth.name,
        priority=priority,
        duration=profile.duration,
        submitted=submitted,
        profile=profile,
    )
    return Task(job, truth)


def check_tasks(tasks: Sequence[Task]) -> None:
    """Refuse jobs that cannot be simulated.

    Raises
    ------
    ValueError
        Two have one id, or an arrival is not a time.
    """
    seen: set[str] = set()
    for task in tasks:
        job = task.job
        if job.id in seen:
            raise ValueError(f"job {job.id}: expected ids that differ")
        seen.add(job.id)
        if not (isfinite(job.submitted) and job.submitted >= 0):
            raise ValueError(f"job {job.id}: submitted: {job.submitted}: expected 0 or more")
