"""The progress and the memory of the jobs on one simulated GPU, in virtual time.

A *job* is a program here: that of a SharedGPUJob or of any other Pod.

The speed of co-located jobs and the utilisation of the GPU are computed by
`partita_policies.interference`, refused memory requests and evictions by
`partita_policies.memory_pressure`. The simulator and the policies use the same models.

A job's memory and utilisation depend on its progress: if a job is slowed down, its memory also
grows later. A job that is evicted, or whose memory request is refused, ends like a program that
does not handle the error.
"""

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from partita.agent.usage.neighbours import UNKNOWN, NeighbourTimes, Times
from partita_policies.interference import TYPICAL_CACHE, Load, slowdowns, utilization
from partita_policies.memory_pressure import evicted_for
from partita_policies.types import Sharing

__all__ = ["GIB", "Ended", "SimulatedGPU", "SimulatedJob", "UsageSample", "Work"]

GIB: Final = 1 << 30
EVICTED: Final = (
    "torch.AcceleratorError: CUDA error: the MPS client has been terminated by the server"
)
"""Message of a program that was evicted: cudaErrorMpsClientTerminated (810)
(https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html), as PyTorch prints it."""
REPORTS: Final = 10
"""Number of progress reports in a run of a job."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one job on one GPU.

    Parameters
    ----------
    key
        Key of the job; unique on the GPU.
    duration
        Duration alone on the GPU, seconds.
    memory
        Bytes in use, over equal parts of the job's progress.
    utilisation
        Percent of the GPU in use when alone, over equal parts of the job's progress.
    memory_limit
        Bytes above which memory is refused; None for no limit.
    guarantee
        Bytes up to which the job is not evicted; None for `memory_limit`.
    thread_percent
        Percent of the GPU's threads that the job may use under MPS.
    repeats
        Whether the job begins again instead of ending.
    application
        What names its application in the profiles of others.
    """

    key: str
    duration: float
    memory: tuple[int, ...]
    utilisation: tuple[float, ...]
    memory_limit: int | None = None
    thread_percent: int = 100
    guarantee: int | None = None
    repeats: bool = False
    application: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Use of a job from a virtual time on: bytes, and percent of the GPU."""

    time: float = field(compare=False)
    memory: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a job: `time` in virtual seconds, `error` if it failed, and who was beside it."""

    key: str
    time: float
    peak: int
    error: str = ""
    history: tuple[UsageSample, ...] = field(default=(), compare=False)
    beside: Times = field(default_factory=dict, compare=False)


class SimulatedJob:
    """A job on the GPU.

    Attributes
    ----------
    done
        Seconds of work done.
    memory
        Bytes in use now.
    peak
        Maximum of the bytes in use so far.
    rate
        Speed of the job; 1 is that of a job alone.
    history
        Use of the job, with a sample at each change; empty for a job that repeats.
    """

    def __init__(self, work: Work, done: float) -> None:
        self.work = work
        self.done = done % work.duration if self.repeats else min(done, work.duration)
        self.memory = self.peak = 0
        self.rate = 1.0
        self.history: list[UsageSample] = []
        # The use is constant within each part. Progress can be reported at the end of a part.
        counts = {len(work.memory), len(work.utilisation), 1 if self.repeats else REPORTS}
        self._bounds = sorted({Fraction(i, n) for n in counts for i in range(1, n + 1)})
        progress = self.done / work.duration if work.duration else 1.0
        self._part = min(bisect_right(self._bounds, progress), len(self._bounds) - 1)

    def advance(self) -> bool:
        """Begin the next part, if there is one."""
        if self._part + 1 < len(self._bounds):
            self._part += 1
        elif self.repeats:
            self._part, self.done = 0, 0.0
        else:
            return False
        return True

    @property
    def repeats(self) -> bool:
        """Whether it begins again instead of ending."""
        return self.work.repeats and self.work.duration > 0

    @property
    def began(self) -> Fraction:
        """Share of the work done at the start of the current part."""
        return self._bounds[self._part - 1] if self._part else Fraction(0)

    @property
    def until(self) -> float:
        """Seconds of work done at the end of the current part."""
        return float(self.work.duration * self._bounds[self._part])

    @property
    def wanted(self) -> int:
        """Bytes that the current part needs."""
        return self.work.memory[int(self.began * len(self.work.memory))]

    @property
    def ceiling(self) -> int:
        """Bytes above which memory is refused."""
        limit = self.work.memory_limit
        return sys.maxsize if limit is None else limit

    @property
    def guarantee(self) -> int:
        """Bytes up to which the job is not evicted; 0 without limits."""
        own = self.work.guarantee
        return (self.work.memory_limit or 0) if own is None else own

    @property
    def demand(self) -> float:
        """Percent of the GPU that the current part would use alone."""
        return self.work.utilisation[int(self.began * len(self.work.utilisation))]

    @property
    def load(self) -> Load:
        """Load of the current part in the interference model."""
        busy, threads = self.demand / 100, self.work.thread_percent / 100
        return Load(busy, busy, 0.0, self.memory / GIB, TYPICAL_CACHE, threads)


class SimulatedGPU:
    """One GPU and its jobs, by the key of their work.

    Parameters
    ----------
    memory
        Bytes of memory.
    sharing
        How jobs share the GPU.
    now
        Virtual start time, seconds.
    """

    def __init__(self, memory: int, sharing: Sharing, now: float = 0.0) -> None:
        self.memory = memory
        self.sharing = sharing
        self.now = now
        self.jobs: dict[str, SimulatedJob] = {}
        self._neighbours: NeighbourTimes[str] = NeighbourTimes()

    @property
    def used(self) -> int:
        """Bytes in use now."""
        return sum(job.memory for job in self.jobs.values())

    @property
    def utilisation(self) -> float:
        """Percent of the time in which the GPU is busy now."""
        loads = [job.load for job in self.jobs.values()]
        slow = [1 / job.rate for job in self.jobs.values()]
        return 100 * utilization(loads, slow, self.sharing)

    def start(self, work: Work, *, done: float = 0.0) -> list[Ended]:
        """Start a job now; the caller must have advanced the GPU to now.

        Parameters
        ----------
        work
            The work of the job.
        done
            Seconds of work already done, at full speed.

        Returns
        -------
        list of Ended
            The jobs that are evicted for its first memory request; the job itself if the request is
            refused.

        Raises
        ------
        ValueError
            If a job with this key is already running.
        """
        if work.key in self.jobs:
            raise ValueError(f"{work.key} runs on this GPU already")
        job = self.jobs[work.key] = SimulatedJob(work, done)
        ended = self._ask(job)
        self._set_rates()
        return ended

    def stop(self, key: str, error: str = "") -> Ended:
        """End a job now."""
        job = self.jobs.pop(key)
        self._set_rates()
        beside = self._neighbours.pop(key)
        return Ended(key, self.now, job.peak, error, tuple(job.history), beside)

    def next_event(self) -> float:
        """Return the time of the next change of demand or end of a job; infinity without jobs."""
        return min((self._due(job) for job in self.jobs.values()), default=math.inf)

    def advance(self, to: float) -> list[Ended]:
        """Advance virtual time.

        Parameters
        ----------
        to
            The new time; a time in the past has no effect.

        Returns
        -------
        list of Ended
            The jobs that ended until then, in order of time.
        """
        ended: list[Ended] = []
        while self.jobs:
            job = min(self.jobs.values(), key=self._due)
            at = self._due(job)
            if at > to:
                break
            self._pass(at)
            job.done = job.until
            ended += self._ask(job) if job.advance() else [self.stop(job.work.key)]
            self._set_rates()
        self._pass(to)
        return ended

    def _due(self, job: SimulatedJob) -> float:
        return self.now + max(0.0, job.until - job.done) / job.rate

    def _pass(self, to: float) -> None:
        for job in self.jobs.values() if to > self.now else ():
            job.done = min(job.until, job.done + (to - self.now) * job.rate)
        if to > self.now and self.sharing is not Sharing.TIME_SLICING:
            names = {key: job.work.application for key, job in self.jobs.items()}
            self._neighbours.add(to - self.now, names)
        self.now = max(self.now, to)

    def _ask(self, job: SimulatedJob) -> list[Ended]:
        """Grant the memory request of a job, and end the jobs that are evicted for it.

        If the request is refused, the job itself ends.
        """
        others = [other for other in self.jobs.values() if other is not job]
        evicted = evicted_for(job.wanted, job, others, self.memory)
        if evicted is None:
            capacity, free = self.memory, self.memory - self.used
            if job.wanted > job.ceiling:
                capacity, free = job.ceiling, job.ceiling - job.memory
            error = _out_of_memory(job.wanted - job.memory, capacity, free)
            return [self.stop(job.work.key, error)]
        job.memory = job.wanted
        job.peak = max(job.peak, job.memory)
        return [self.stop(other.work.key, EVICTED) for other in evicted]

    def _set_rates(self) -> None:
        jobs = list(self.jobs.values())
        for job, slow in zip(
            jobs, slowdowns([job.load for job in jobs], self.sharing), strict=True
        ):
            job.rate = 1 / slow
            sample = UsageSample(self.now, job.memory, job.demand * job.rate)
            if not job.repeats and (not job.history or sample != job.history[-1]):
                job.history.append(sample)


def _out_of_memory(asked: int, capacity: int, free: int) -> str:
    """Return PyTorch's message: https://docs.pytorch.org/docs/stable/notes/faq.html."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked / GIB:.2f} GiB. "
        f"GPU 0 has a total capacity of {capacity / GIB:.2f} GiB "
        f"of which {free / GIB:.2f} GiB is free."
    )
