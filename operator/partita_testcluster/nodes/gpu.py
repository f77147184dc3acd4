"""The progress and the memory of the jobs on one simulated GPU, in virtual time.

How fast jobs run beside each other, how busy the GPU is and whose memory is refused come from
`partita_policies.interference`: the simulator runs by the same model, and policies predict with it.

A job's memory and utilisation follow its own progress, so a job that is slowed down also grows
later. A job to which memory is refused ends, like a program that does not handle the error.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from partita_policies.interference import (
    TYPICAL_CACHE,
    Load,
    memory_refused,
    slowdowns,
    utilization,
)
from partita_policies.types import Sharing

__all__ = ["GIB", "Ended", "SimulatedGPU", "SimulatedJob", "UsageSample", "Work"]

GIB: Final = 1 << 30
REPORTS: Final = 10
"""Times in a run at which a job reports its progress."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one job does on one GPU.

    Parameters
    ----------
    key
        Names the job; unique on the GPU.
    duration
        Seconds it takes alone on the GPU.
    memory
        Bytes in use, over equal parts of the job's progress.
    utilisation
        Percent of the GPU in use when alone, over equal parts of the job's progress.
    memory_limit
        Bytes above which MPS refuses memory to it; None for no limit.
    thread_percent
        Percent of the GPU's threads that MPS lets it use.
    """

    key: str
    duration: float
    memory: tuple[int, ...]
    utilisation: tuple[float, ...]
    memory_limit: int | None = None
    thread_percent: int = 100


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What a job uses from a virtual time on: bytes, and percent of the GPU."""

    time: float = field(compare=False)
    memory: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's end: `time` in virtual seconds, and `error` when memory was refused to it."""

    key: str
    time: float
    peak: int
    error: str = ""
    history: tuple[UsageSample, ...] = field(default=(), compare=False)


class SimulatedJob:
    """A job on the GPU.

    Attributes
    ----------
    done
        Seconds of its work that are done.
    memory
        Bytes in use now.
    peak
        Most bytes in use so far.
    rate
        Its speed; 1 is that of a job alone.
    history
        What it has used, a sample at each change.
    """

    def __init__(self, work: Work, done: float) -> None:
        self.work = work
        self.done = min(done, work.duration)
        self.memory = self.peak = 0
        self.rate = 1.0
        self.history: list[UsageSample] = []
        # Within each part its use is even, and at its end its progress can be reported.
        counts = {len(work.memory), len(work.utilisation), REPORTS}
        self._bounds = sorted({Fraction(i, n) for n in counts for i in range(1, n + 1)})
        progress = self.done / work.duration if work.duration else 1.0
        self._part = min(bisect_right(self._bounds, progress), len(self._bounds) - 1)

    def advance(self) -> bool:
        """Begin the next part, if there is one."""
        if self._part + 1 == len(self._bounds):
            return False
        self._part += 1
        return True

    @property
    def began(self) -> Fraction:
        """Share of the work that was done when the present part began."""
        return self._bounds[self._part - 1] if self._part else Fraction(0)

    @property
    def until(self) -> float:
        """Seconds of its work that are done when the present part is."""
        return float(self.work.duration * self._bounds[self._part])

    @property
    def wanted(self) -> int:
        """Bytes that the present part needs."""
        return self.work.memory[int(self.began * len(self.work.memory))]

    @property
    def demand(self) -> float:
        """Percent of the GPU that the present part would use alone."""
        return self.work.utilisation[int(self.began * len(self.work.utilisation))]

    @property
    def load(self) -> Load:
        """What the present part asks of the GPU, in terms of the interference model."""
        busy, threads = self.demand / 100, self.work.thread_percent / 100
        return Load(busy, busy, 0.0, self.memory / GIB, TYPICAL_CACHE, threads)


class SimulatedGPU:
    """One GPU and the jobs on it, by their work's key.

    Parameters
    ----------
    memory
        Bytes it has.
    sharing
        How jobs share it.
    now
        Virtual time at which it begins, in seconds.
    """

    def __init__(self, memory: int, sharing: Sharing, now: float = 0.0) -> None:
        self.memory = memory
        self.sharing = sharing
        self.now = now
        self.jobs: dict[str, SimulatedJob] = {}

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

    def start(self, work: Work, *, done: float = 0.0) -> Ended | None:
        """Start a job now; the caller has advanced the GPU to now.

        Parameters
        ----------
        work
            What the job does.
        done
            Seconds of it that are done already, at full speed.

        Returns
        -------
        Ended or None
            Its end, if even its first memory is refused.

        Raises
        ------
        ValueError
            If a job of this key runs already.
        """
        if work.key in self.jobs:
            raise ValueError(f"{work.key} runs on this GPU already")
        job = self.jobs[work.key] = SimulatedJob(work, done)
        ended = self._ask(job)
        self._set_rates()
        return ended

    def stop(self, key: str, error: str = "") -> Ended:
        """End a job now, whatever it has done."""
        job = self.jobs.pop(key)
        self._set_rates()
        return Ended(key, self.now, job.peak, error, tuple(job.history))

    def next_event(self) -> float:
        """Return when a job next changes its demand or ends; infinity without a job."""
        return min((self._due(job) for job in self.jobs.values()), default=math.inf)

    def advance(self, to: float) -> list[Ended]:
        """Let virtual time pass.

        Parameters
        ----------
        to
            The new time; one in the past has no effect.

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
            end = self._ask(job) if job.advance() else self.stop(job.work.key)
            if end is not None:
                ended.append(end)
            self._set_rates()
        self._pass(to)
        return ended

    def _due(self, job: SimulatedJob) -> float:
        return self.now + max(0.0, job.until - job.done) / job.rate

    def _pass(self, to: float) -> None:
        for job in self.jobs.values() if to > self.now else ():
            job.done = min(job.until, job.done + (to - self.now) * job.rate)
        self.now = max(self.now, to)

    def _ask(self, job: SimulatedJob) -> Ended | None:
        """Give a job the memory that it wants now, or end it."""
        others, limit = self.used - job.memory, job.work.memory_limit
        if memory_refused(job.wanted, others, self.memory, limit):
            capacity, free = self.memory, self.memory - others - job.memory
            if limit is not None and job.wanted > limit:
                capacity, free = limit, limit - job.memory
            error = _out_of_memory(job.wanted - job.memory, capacity, free)
            return self.stop(job.work.key, error)
        job.memory = job.wanted
        job.peak = max(job.peak, job.memory)
        return None

    def _set_rates(self) -> None:
        jobs = list(self.jobs.values())
        for job, slow in zip(
            jobs, slowdowns([job.load for job in jobs], self.sharing), strict=True
        ):
            job.rate = 1 / slow
            sample = UsageSample(self.now, job.memory, job.demand * job.rate)
            if not job.history or sample != job.history[-1]:
                job.history.append(sample)


def _out_of_memory(asked: int, capacity: int, free: int) -> str:
    """Return PyTorch's message: https://docs.pytorch.org/docs/stable/notes/faq.html."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked / GIB:.2f} GiB. "
        f"GPU 0 has a total capacity of {capacity / GIB:.2f} GiB "
        f"of which {free / GIB:.2f} GiB is free."
    )
