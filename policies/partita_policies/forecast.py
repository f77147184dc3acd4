"""Predicted durations of jobs on a GPU, depending on the co-located jobs.

The inputs are only profiles, requests, and the time since a job was allocated.
`partita_policies.interference` predicts how much jobs slow each other down. Time is in seconds.
Work is in seconds of running alone.

Assumptions without measurements: a job without a profile keeps the GPU busy. Its share of the SMs
is its thread limit, or its share of the memory (its allocation) if threads are not limited. A job
of unknown duration runs for `typical_duration`. A running job that is overdue has `OVERDUE` of
its work left. A lasting job has the mean load of its profile for ever.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf
from statistics import median

from partita_policies.co_runs import pair_factors
from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing, Snapshot, Step

__all__ = [
    "MAX_PHASES",
    "Forecast",
    "JobForecast",
    "LoadPhase",
    "Running",
    "known_duration",
    "mean_load",
    "outlook_of",
    "phases_of",
    "slowdowns_together",
    "typical_duration",
]

MAX_PHASES = 6
"""Maximum number of phases of a reduced profile. Each phase costs one event in a prediction."""
OVERDUE = 0.05
"""Assumed minimum share of the work that a running job has left."""
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
    memory: int
    """Bytes allocated."""
    slots: int = 1
    clients: int = 1
    alone: bool = False
    measured: bool = True
    """Whether the prediction is based on a profile."""
    profile: Profile | None = None

    @property
    def duration(self) -> float:
        """Seconds of a run without co-located jobs; infinity for a lasting job."""
        return sum(phase.seconds for phase in self.phases)


Running = tuple[tuple[int, ...], tuple[float, ...]]
"""Jobs on a GPU: the phase code of each job, ascending, and its work left in that phase."""


def typical_duration(snapshot: Snapshot) -> float:
    """Return the median of the known durations, for jobs of unknown duration."""
    jobs: list[Job | RunningJob] = [*snapshot.jobs]
    jobs += [running_job for gpu in snapshot.gpus for running_job in gpu.running]
    durations = [known_duration(job) for job in jobs if not job.lasting]
    known = [duration for duration in durations if duration is not None]
    return median(known) if known else UNKNOWN_DURATION


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
        measured = True
    else:
        limit = gpu.thread_share(job.thread_percent)
        asked = job.memory / gpu.memory if gpu.memory and not job.alone else 1.0
        sm = limit if limit < 1 else min(asked, 1.0)
        load = load_of(Step(100.0, job.memory), gpu, thread_percent=job.thread_percent)
        phases, measured = (LoadPhase(max(duration, _ENOUGH), load._replace(sm=sm)),), False
    if job.lasting:
        phases = (LoadPhase(inf, mean_load(phases)),)
    asked_for = (job.memory, job.slots, job.clients, job.alone)
    return JobForecast(phases, mean_load(phases), *asked_for, measured, profile)


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
    factors = pair_factors([job.profile for job in jobs]) if sharing is Sharing.MPS else None
    slower = slowdowns([outlook.mean for outlook in outlooks], sharing, factors)
    measured = all(outlook.measured for outlook in outlooks)
    return [(much, measured) for much in slower]


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


class Forecast:
    """Predicts the runs of jobs that share a GPU of one type.

    Parameters
    ----------
    outlooks
        Prediction for every job class on this type of GPU. A job class is identified by its index
        here.

    Attributes
    ----------
    work
        Number of predictions so far. It bounds a search independently of the machine's speed.
    """

    def __init__(self, sharing: Sharing, outlooks: Sequence[JobForecast]) -> None:
        self.outlooks = outlooks
        self.durations = [outlook.duration for outlook in outlooks]
        self.work = 0
        self._sharing = sharing
        self.lasting = [duration == inf for duration in self.durations]
        """Whether the jobs of each class never end."""
        self._means = [outlook.mean for outlook in outlooks]
        self._profiles = [outlook.profile for outlook in outlooks]
        self._corrects = sharing is Sharing.MPS and any(p and p.co_runs for p in self._profiles)
        """Whether co-runs correct predictions."""
        self._first: list[int] = []
        self._class: list[int] = []
        self._phases: list[LoadPhase] = []
        for job_class, outlook in enumerate(outlooks):
            self._first.append(len(self._phases))
            self._phases += outlook.phases
            self._class += [job_class] * len(outlook.phases)
        self._last = [a != b for a, b in pairwise([*self._class, -1])]
        self._rates: dict[tuple[int, ...], list[float]] = {}
        self._mean_rates: dict[tuple[int, ...], list[float]] = {}
        self._fresh: dict[tuple[int, ...], float] = {(): 0.0}

    def classes(self, running: Running) -> tuple[int, ...]:
        """Return the classes of the running jobs, ascending."""
        job_class = self._class
        return tuple([job_class[code] for code in running[0]])

    def add(self, running: Running, classes: Iterable[int]) -> Running:
        """Return the running jobs together with new jobs of these classes."""
        codes, left = list(running[0]), list(running[1])
        for job_class in classes:
            code = self._first[job_class]
            place = bisect_left(codes, code)
            codes.insert(place, code)
            left.insert(place, self._phases[code].seconds)
        return tuple(codes), tuple(left)

    def rates(self, classes: tuple[int, ...]) -> list[float]:
        """Return the average work per second of each job while all of them run.

        Parameters
        ----------
        classes
            Ascending.
        """
        rates = self._mean_rates.get(classes)
        if rates is None:
            self.work += 1
            slower = self._slower(classes, [self._means[job_class] for job_class in classes])
            rates = self._mean_rates[classes] = [1 / much for much in slower]
        return rates

    def until_end(self, running: Running) -> tuple[float, Running, int]:
        """Simulate until a job ends.

        Parameters
        ----------
        running
            At least one job that ends.

        Returns
        -------
        tuple
            Seconds until then, the jobs that still run, and the number of ended jobs.
        """
        codes, left = running
        elapsed = 0.0
        while True:
            rates = self._rates_of(codes)
            step = min([work / rate for work, rate in zip(left, rates, strict=True)])
            elapsed += step
            self.work += 1
            on: list[int] = []
            rest: list[float] = []
            ended = 0
            for code, work, rate in zip(codes, left, rates, strict=True):
                remains = work - step * rate
                if remains > _ENOUGH * work or remains == inf:
                    on.append(code)
                    rest.append(remains)
                elif self._last[code]:
                    ended += 1
                else:
                    on.append(code + 1)
                    rest.append(self._phases[code + 1].seconds)
            codes, left = tuple(on), tuple(rest)
            if ended:
                return elapsed, (codes, left), ended

    def until_empty(self, running: Running) -> float:
        """Return the seconds until all jobs that end have ended, without new jobs."""
        elapsed = 0.0
        while self.is_busy(running):
            step, running, _ = self.until_end(running)
            elapsed += step
        return elapsed

    def is_beneficial(self, classes: tuple[int, ...], job_class: int) -> bool:
        """Return whether starting all jobs together takes no longer than running one more after."""
        together = tuple(sorted((*classes, job_class)))
        after = self._together(classes) + self.seconds_after(classes, job_class)
        return self._together(together) <= after

    def is_busy(self, running: Running) -> bool:
        """Return whether some running job ends."""
        return min(running[1], default=inf) < inf

    def seconds_after(self, classes: tuple[int, ...], job_class: int) -> float:
        """Return the seconds of one more job once all jobs of these classes that end have ended.

        Parameters
        ----------
        classes
            Ascending.
        """
        lasting = [other for other in classes if self.lasting[other]]
        if not lasting:
            return self.durations[job_class]
        return self._together(tuple(sorted((*lasting, job_class))))

    def caught_up(self, held: Sequence[tuple[int, float]]) -> Running:
        """Estimate the progress of the jobs on a GPU.

        Parameters
        ----------
        held
            Class and seconds since the allocation of each job. Jobs that have already ended are
            unknown and therefore ignored.
        """
        order = sorted(held, key=lambda one: (-one[1], one[0]))
        done: list[float] = []
        for index, (_, since) in enumerate(order):
            done.append(0.0)
            until = order[index + 1][1] if index + 1 < len(order) else 0.0
            self._run(order, done, since - until)
        places = [
            self._place(job_class, work) for (job_class, _), work in zip(order, done, strict=True)
        ]
        places.sort()
        return tuple([code for code, _ in places]), tuple([left for _, left in places])

    def _run(self, order: Sequence[tuple[int, float]], done: list[float], seconds: float) -> None:
        """Simulate the first `len(done)` jobs for a time and update `done`."""
        while seconds > _ENOUGH:
            places = [self._place(order[i][0], work) for i, work in enumerate(done)]
            codes = [code for code, _ in places]
            slower = self._slower_in(codes)
            self.work += 1
            step = seconds
            most = [self.durations[order[i][0]] * (1 - OVERDUE) for i in range(len(done))]
            for i, ((code, left), much) in enumerate(zip(places, slower, strict=True)):
                if not self._last[code] and done[i] < most[i]:
                    step = min(step, max(left * much, _ENOUGH))
            for i, much in enumerate(slower):
                done[i] = min(done[i] + step / much, most[i])
            seconds -= step

    def _place(self, job_class: int, done: float) -> tuple[int, float]:
        """Return the phase of a job after so much work, and the work left in that phase."""
        code = self._first[job_class]
        while not self._last[code] and done >= self._phases[code].seconds - _ENOUGH:
            done -= self._phases[code].seconds
            code += 1
        return code, max(self._phases[code].seconds - done, _ENOUGH)

    def _together(self, classes: tuple[int, ...]) -> float:
        seconds = self._fresh.get(classes)
        if seconds is None:
            seconds = self._fresh[classes] = self.until_empty(self.add(((), ()), classes))
        return seconds

    def _rates_of(self, codes: tuple[int, ...]) -> list[float]:
        rates = self._rates.get(codes)
        if rates is None:
            self.work += 1
            slower = self._slower_in(codes)
            rates = self._rates[codes] = [1 / much for much in slower]
        return rates

    def _slower_in(self, codes: Sequence[int]) -> list[float]:
        """Return the slowdown of each job while all of them are in these phases."""
        loads = [self._phases[code].load for code in codes]
        return self._slower([self._class[code] for code in codes], loads)

    def _slower(self, classes: Sequence[int], loads: Sequence[Load]) -> list[float]:
        profiles = [self._profiles[one] for one in classes] if self._corrects else ()
        return slowdowns(loads, self._sharing, pair_factors(profiles))


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
