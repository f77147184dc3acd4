"""What a job is predicted to load a GPU with, and for how long, from its profile or its request.

`partita_policies.interference` predicts how much jobs slow each other down. Time is in seconds of
running alone.

Assumptions without measurements: a job without a profile keeps the GPU busy. Its share of the SMs
is its thread limit, or its share of the memory (its allocation) if threads are not limited. A job
of unknown duration runs for `typical_duration`. A lasting job has the mean load of its profile for
ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf
from statistics import median

from partita_policies.co_runs import pair_factors
from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing, Snapshot, Step

__all__ = [
    "LEAST_LEFT",
    "MAX_PHASES",
    "JobForecast",
    "LoadPhase",
    "assumed_sm_share",
    "check_duration",
    "is_measured",
    "known_duration",
    "mean_load",
    "outlook_of",
    "phases_of",
    "slowdowns_of",
    "slowdowns_together",
    "typical_duration",
]

MAX_PHASES = 6
"""Maximum number of phases of a reduced profile. Each phase costs one event in a prediction."""
LEAST_LEFT = 0.05
"""Assumed least share of its time that a running job has left."""
UNKNOWN_DURATION = 600.0
"""Assumed seconds of a job if no duration is known. It cancels out if all jobs have it."""

_SIMILAR = 0.02
_ASPECTS = len(Load._fields)
_ENOUGH = 1e-6


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A part of a run with nearly constant load."""

    seconds: float
    """Infinity for a lasting job."""
    load: Load


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The prediction for a job on one type of GPU."""

    phases: tuple[LoadPhase, ...]
    mean: Load
    """Average load."""

    @property
    def duration(self) -> float:
        """Seconds of a run without co-located jobs; infinity for a lasting job."""
        return sum(phase.seconds for phase in self.phases)


def check_duration(seconds: float) -> None:
    """Raise a `ValueError` if a duration is below 0, infinite or no number."""
    if not 0 <= seconds < inf:
        raise ValueError(f"a duration of {seconds} s is no number to plan with")


def typical_duration(snapshot: Snapshot) -> float:
    """Return the median of the known durations, for jobs of unknown duration.

    Raises
    ------
    ValueError
        It is infinite or no number.
    """
    jobs: list[Job | RunningJob] = [*snapshot.jobs]
    jobs += [running_job for gpu in snapshot.gpus for running_job in gpu.running]
    durations = [known_duration(job) for job in jobs if not job.lasting]
    known = [duration for duration in durations if duration is not None]
    typical = median(known) if known else UNKNOWN_DURATION
    check_duration(typical)
    return typical


def outlook_of(job: Job | RunningJob, gpu: GPU, typical: float) -> JobForecast:
    """Predict a job on a GPU from its profile, or from its request if it has no profile.

    Parameters
    ----------
    typical
        Seconds of a job of unknown duration.
    """
    known = known_duration(job)
    duration = typical if known is None else known
    profile = job.profile
    if profile is not None and profile.steps:
        phases = phases_of(profile, gpu, thread_percent=job.thread_percent)
    else:
        load = load_of(Step(100.0, job.memory), gpu, thread_percent=job.thread_percent)
        load = load._replace(sm=assumed_sm_share(job, gpu))
        phases = (LoadPhase(max(duration, _ENOUGH), load),)
    if job.lasting:
        phases = (LoadPhase(inf, mean_load(phases)),)
    return JobForecast(phases, mean_load(phases))


def assumed_sm_share(job: Job | RunningJob, gpu: GPU) -> float:
    """Return the share of the SMs that a job without a profile is assumed to use."""
    limit = gpu.thread_share(job.thread_percent)
    asked = job.memory / gpu.memory if gpu.memory and not job.alone else 1.0
    return limit if limit < 1 else min(asked, 1.0)


def slowdowns_together(
    jobs: Sequence[Job | RunningJob], gpu: GPU, sharing: Sharing
) -> list[tuple[float, bool]]:
    """Predict the slowdown of each job on a GPU from its mean load and from its co-runs.

    Returns
    -------
    list of tuple
        Slowdown, and whether all jobs have profiles, in the order of `jobs`.
    """
    outlooks = [outlook_of(job, gpu, UNKNOWN_DURATION) for job in jobs]
    profiles = [job.profile for job in jobs]
    slower = slowdowns_of([outlook.mean for outlook in outlooks], profiles, sharing)
    measured = all(map(is_measured, profiles))
    return [(much, measured) for much in slower]


def slowdowns_of(
    loads: Sequence[Load], profiles: Sequence[Profile | None], sharing: Sharing
) -> list[float]:
    """Predict the slowdown of each job on a GPU from its load and from the co-runs in its profile.

    Parameters
    ----------
    loads, profiles
        Those of each job.
    """
    factors = pair_factors(profiles) if sharing is Sharing.MPS else None
    return slowdowns(loads, sharing, factors)


def is_measured(profile: Profile | None) -> bool:
    """Return whether a profile says what a job uses over time."""
    return profile is not None and bool(profile.steps)


def phases_of(profile: Profile, gpu: GPU, *, thread_percent: int = 100) -> tuple[LoadPhase, ...]:
    """Reduce a profile to at most `MAX_PHASES` by joining the most similar adjacent phases.

    Parameters
    ----------
    profile
        Has at least one step. Invalid amounts below 0 count as 0.
    """
    return _phases(profile, gpu.memory, gpu.pcie_bandwidth, gpu.sm_partitions, thread_percent)


@lru_cache(maxsize=4096)
def _phases(
    profile: Profile, memory: int, pcie_bandwidth: int, sm_partitions: int, thread_percent: int
) -> tuple[LoadPhase, ...]:
    gpu = GPU("", "", memory, 1, pcie_bandwidth=pcie_bandwidth, sm_partitions=sm_partitions)
    seconds = max(profile.duration, _ENOUGH) / len(profile.steps)
    merged: list[LoadPhase] = []
    for step in profile.steps:
        load = load_of(step, gpu, thread_percent=thread_percent)
        phase = LoadPhase(seconds, Load(*[max(amount, 0.0) for amount in load]))
        if merged and _distance(merged[-1], phase, gpu) < _SIMILAR:
            phase = _joined(merged.pop(), phase)
        merged.append(phase)
    while len(merged) > MAX_PHASES:
        costs = [
            _distance(one, other, gpu) * min(one.seconds, other.seconds)
            for one, other in pairwise(merged)
        ]
        at = costs.index(min(costs))
        merged[at : at + 2] = [_joined(merged[at], merged[at + 1])]
    return tuple(merged)


def mean_load(phases: Sequence[LoadPhase]) -> Load:
    """Return the average load of at least one phase."""
    if len(phases) == 1:
        return phases[0].load
    total = sum([phase.seconds for phase in phases])
    shares = [(phase.seconds / total, phase.load) for phase in phases]
    return Load(*[sum([share * load[i] for share, load in shares]) for i in range(_ASPECTS)])


def known_duration(job: Job | RunningJob) -> float | None:
    """Return the seconds of a job's run according to its profile or its request, if any."""
    profile = job.profile
    return profile.duration if profile is not None and profile.steps else job.duration


def _joined(one: LoadPhase, other: LoadPhase) -> LoadPhase:
    return LoadPhase(one.seconds + other.seconds, mean_load((one, other)))


def _distance(one: LoadPhase, other: LoadPhase, gpu: GPU) -> float:
    """Return the difference between two phases, in shares of the GPU."""
    a, b = one.load, other.load
    memory = abs(a.memory - b.memory) * (1 << 30) / gpu.memory if gpu.memory else 0.0
    return abs(a.busy - b.busy) + abs(a.sm - b.sm) + abs(a.pcie - b.pcie) + memory
