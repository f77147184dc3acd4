"""What a policy can foresee of jobs on a GPU: how long each takes beside which others.

It knows the profiles, the requests, and how long a job has held its GPU, no more; how much jobs
slow each other down is `partita_policies.interference`. Time is in seconds, work in the seconds
that it takes alone.

Assumptions, where nothing was measured. A job without a profile has the GPU busy, and asks for
as much of the SMs as its threads allow, or as of the memory where these are not limited (its
allocation); it runs for `typical_duration`. A running job that should have ended by now still has
`OVERDUE` of its work to do.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median

from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing, Snapshot, Step

__all__ = [
    "MAX_PHASES",
    "Forecast",
    "JobForecast",
    "LoadPhase",
    "Running",
    "mean_load",
    "outlook_of",
    "phases_of",
    "typical_duration",
]

MAX_PHASES = 6
"""Phases that a profile is reduced to: each is an event of its own in a prediction."""
OVERDUE = 0.05
"""Share of its work that a running job is taken to have left at the least. An assumption."""
UNKNOWN_DURATION = 600.0
"""Seconds of a job when nothing is known of any. An assumption; among such jobs it cancels out."""

_SIMILAR = 0.02
_ASPECTS = len(Load._fields)
_ENOUGH = 1e-6


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A part of a run in which it asks for much the same."""

    seconds: float
    load: Load


@dataclass(frozen=True, slots=True)
class JobForecast:
    """What is foreseen of a job on one sort of GPU."""

    phases: tuple[LoadPhase, ...]
    mean: Load
    """What it asks for on average."""
    memory: int
    """Bytes allocated."""
    slots: int = 1
    clients: int = 1
    alone: bool = False
    measured: bool = True
    """Whether it rests on a profile."""

    @property
    def duration(self) -> float:
        """Seconds of a run alone."""
        return sum(phase.seconds for phase in self.phases)


Running = tuple[tuple[int, ...], tuple[float, ...]]
"""Jobs on a GPU: the code of each one's phase, ascending, and the work left in that phase."""


def typical_duration(snapshot: Snapshot) -> float:
    """Return the median of the durations that are known, for jobs of which none is."""
    jobs: list[Job | RunningJob] = [*snapshot.jobs]
    jobs += [running_job for gpu in snapshot.gpus for running_job in gpu.running]
    known = [duration for job in jobs if (duration := _known_duration(job)) is not None]
    return median(known) if known else UNKNOWN_DURATION


def outlook_of(job: Job | RunningJob, gpu: GPU, typical: float) -> JobForecast:
    """Foresee a job on a GPU from its profile, or from its request without one.

    Parameters
    ----------
    typical
        Seconds of a job of unknown duration.
    """
    duration = _known_duration(job)
    if duration is None:
        duration = typical
    profile = job.profile
    if profile is not None and profile.steps:
        phases = phases_of(profile, gpu, thread_percent=job.thread_percent)
        measured = True
    else:
        limit = (job.thread_percent or 100) / 100
        asked = job.memory / gpu.memory if gpu.memory and not job.alone else 1.0
        sm = limit if limit < 1 else min(asked, 1.0)
        load = load_of(Step(100.0, job.memory), gpu, thread_percent=job.thread_percent)
        phases, measured = (LoadPhase(max(duration, _ENOUGH), load._replace(sm=sm)),), False
    return JobForecast(
        phases, mean_load(phases), job.memory, job.slots, job.clients, job.alone, measured
    )


def phases_of(profile: Profile, gpu: GPU, *, thread_percent: int = 100) -> tuple[LoadPhase, ...]:
    """Reduce a profile to at most `MAX_PHASES`, joining neighbours that ask for the most alike.

    Parameters
    ----------
    profile
        With at least one step. An amount below 0, which no run can have used, counts as 0.
    """
    return _phases(profile, gpu.memory, gpu.pcie_bandwidth, thread_percent)


@lru_cache(maxsize=4096)
def _phases(
    profile: Profile, memory: int, pcie_bandwidth: int, thread_percent: int
) -> tuple[LoadPhase, ...]:
    gpu = GPU("", "", memory, 1, pcie_bandwidth=pcie_bandwidth)
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
    """Return what some phases, at least one, ask for on average."""
    if len(phases) == 1:
        return phases[0].load
    total = sum([phase.seconds for phase in phases])
    shares = [(phase.seconds / total, phase.load) for phase in phases]
    return Load(*[sum([share * load[i] for share, load in shares]) for i in range(_ASPECTS)])


class Forecast:
    """Foresees jobs that share a GPU of one sort.

    Parameters
    ----------
    outlooks
        Of every job class, on this sort of GPU. A job is known by the place of its class here.

    Attributes
    ----------
    work
        Predictions made so far, to bound a search by it: it counts the same on any machine.
    """

    def __init__(self, sharing: Sharing, outlooks: Sequence[JobForecast]) -> None:
        self.outlooks = outlooks
        self.durations = [outlook.duration for outlook in outlooks]
        self.work = 0
        self._sharing = sharing
        self._means = [outlook.mean for outlook in outlooks]
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
        """Return the classes of the jobs that run, ascending."""
        job_class = self._class
        return tuple([job_class[code] for code in running[0]])

    def add(self, running: Running, classes: Iterable[int]) -> Running:
        """Start jobs of these classes beside those that run."""
        codes, left = list(running[0]), list(running[1])
        for job_class in classes:
            code = self._first[job_class]
            place = bisect_left(codes, code)
            codes.insert(place, code)
            left.insert(place, self._phases[code].seconds)
        return tuple(codes), tuple(left)

    def rates(self, classes: tuple[int, ...]) -> list[float]:
        """Return the work that each of some jobs does in a second beside the others, on average.

        Parameters
        ----------
        classes
            Ascending.
        """
        rates = self._mean_rates.get(classes)
        if rates is None:
            self.work += 1
            slower = slowdowns([self._means[job_class] for job_class in classes], self._sharing)
            rates = self._mean_rates[classes] = [1 / much for much in slower]
        return rates

    def until_end(self, running: Running) -> tuple[float, Running, int]:
        """Go on until a job ends.

        Parameters
        ----------
        running
            At least one job.

        Returns
        -------
        tuple
            Seconds until then, the jobs that still run, and how many have ended.
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
                if remains > _ENOUGH * work:
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
        """Return the seconds until all have ended, with nothing added."""
        elapsed = 0.0
        while running[0]:
            step, running, _ = self.until_end(running)
            elapsed += step
        return elapsed

    def is_beneficial(self, classes: tuple[int, ...], job_class: int) -> bool:
        """Say whether one more, all started together, ends no later than it would afterwards."""
        together = tuple(sorted((*classes, job_class)))
        return self._together(together) <= self._together(classes) + self.durations[job_class]

    def caught_up(self, held: Sequence[tuple[int, float]]) -> Running:
        """Work out how far the jobs on a GPU have come.

        Parameters
        ----------
        held
            Class and seconds since it was allocated, of each. Those that shared the GPU with them
            and have ended are not known, and left out.
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
        """Let the first jobs, as many as have a place in `done`, run for a time."""
        while seconds > _ENOUGH:
            places = [self._place(order[i][0], work) for i, work in enumerate(done)]
            codes = [code for code, _ in places]
            slower = slowdowns([self._phases[code].load for code in codes], self._sharing)
            self.work += 1
            step = seconds
            for (code, left), much in zip(places, slower, strict=True):
                if not self._last[code]:
                    step = min(step, max(left * much, _ENOUGH))
            for i, much in enumerate(slower):
                most = self.durations[order[i][0]] * (1 - OVERDUE)
                done[i] = min(done[i] + step / much, most)
            seconds -= step

    def _place(self, job_class: int, done: float) -> tuple[int, float]:
        """Return the phase of a job that has done so much, and what is left of that phase."""
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
            slower = slowdowns([self._phases[code].load for code in codes], self._sharing)
            rates = self._rates[codes] = [1 / much for much in slower]
        return rates


def _known_duration(job: Job | RunningJob) -> float | None:
    profile = job.profile
    return profile.duration if profile is not None and profile.steps else job.duration


def _joined(one: LoadPhase, other: LoadPhase) -> LoadPhase:
    return LoadPhase(one.seconds + other.seconds, mean_load((one, other)))


def _distance(one: LoadPhase, other: LoadPhase, gpu: GPU) -> float:
    """Return how unlike two phases are, in shares of the GPU."""
    a, b = one.load, other.load
    memory = abs(a.memory - b.memory) * (1 << 30) / gpu.memory if gpu.memory else 0.0
    return abs(a.busy - b.busy) + abs(a.sm - b.sm) + abs(a.pcie - b.pcie) + memory
