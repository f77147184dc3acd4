"""The physics of one simulated GPU, in virtual time: who runs how fast, and whose memory fits.

Nothing here knows of Kubernetes or of the wall clock. What it assumes:

- A job's memory and utilisation follow its own progress, so a job that is slowed down also grows
  later. Utilisation is the share of the GPU that the job would use alone.
- **MPS**: kernels of all jobs run side by side. While the demands sum to at most 100 % nobody is
  slowed; above that everybody with a demand is, by the same factor. The one measured table at hand
  (`containers-and-mps.txt`, table 1) agrees for kernels that leave the cache alone (two together
  1.2 to 2.1 times as fast as in turns) and disagrees for large cache-sensitive ones (3.6 times
  slower): there is no cache term here; `partita_research.simulator` has one.
- **TimeSlicing**: the GPU belongs to one job at a time, in equal slices, so each of k jobs with a
  demand runs at 1/k of its speed, however little it asks for.
- **Exclusive**: nobody is slowed.
- Memory is refused, never moved: a job above its own MPS limit is refused alone, and when the
  GPU itself is full, the job that asked last is. A refused job ends, as a program does that does
  not handle the error.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["GIB", "Ended", "Mode", "SimulatedGPU", "SimulatedJob", "Work"]

Mode = Literal["MPS", "TimeSlicing", "Exclusive"]

FULL: Final = 100.0
"""All of a GPU, in percent."""
GIB: Final = 1 << 30


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
    """

    key: str
    duration: float
    memory: tuple[int, ...]
    utilisation: tuple[float, ...]
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's end: `time` in virtual seconds, and `error` when memory was refused to it."""

    key: str
    time: float
    peak: int
    error: str = ""


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
    """

    def __init__(self, work: Work, done: float) -> None:
        self.work = work
        self.done = min(done, work.duration)
        self.memory = self.peak = 0
        self.rate = 1.0
        # Cut into as many parts as both curves need, its work is even within each.
        self._parts = math.lcm(len(work.memory), len(work.utilisation))
        self._part = 0
        while self.done >= self.until and self.advance():
            pass

    def advance(self) -> bool:
        """Begin the next part, if there is one."""
        if self._part + 1 == self._parts:
            return False
        self._part += 1
        return True

    @property
    def until(self) -> float:
        """Seconds of its work that are done when the present part is."""
        return self.work.duration * ((self._part + 1) / self._parts)

    @property
    def wanted(self) -> int:
        """Bytes that the present part needs."""
        return self.work.memory[self._part * len(self.work.memory) // self._parts]

    @property
    def demand(self) -> float:
        """Percent of the GPU that the present part would use alone."""
        return self.work.utilisation[self._part * len(self.work.utilisation) // self._parts]


class SimulatedGPU:
    """One GPU and the jobs on it, by their work's key.

    Parameters
    ----------
    memory
        Bytes it has.
    mode
        How jobs share it.
    now
        Virtual time at which it begins, in seconds.
    """

    def __init__(self, memory: int, mode: Mode, now: float = 0.0) -> None:
        self.memory = memory
        self.mode = mode
        self.now = now
        self.jobs: dict[str, SimulatedJob] = {}

    @property
    def used(self) -> int:
        """Bytes in use now."""
        return sum(job.memory for job in self.jobs.values())

    @property
    def utilisation(self) -> float:
        """Percent in use now."""
        return min(FULL, sum(job.demand * job.rate for job in self.jobs.values()))

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
        return Ended(key, self.now, job.peak, error)

    def next_event(self) -> float:
        """Tell when a job next changes its demand or ends; infinity when there is none."""
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
            The jobs that ended meanwhile, in order of time.
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
        free = self.memory - self.used
        capacity = self.memory
        if job.work.memory_limit is not None and job.wanted > job.work.memory_limit:
            capacity, free = job.work.memory_limit, job.work.memory_limit - job.memory
        if (asked := job.wanted - job.memory) > free:
            return self.stop(job.work.key, _out_of_memory(asked, capacity, free))
        job.memory = job.wanted
        job.peak = max(job.peak, job.memory)
        return None

    def _set_rates(self) -> None:
        demands = [job.demand for job in self.jobs.values() if job.demand]
        shared = {
            "MPS": FULL / max(FULL, sum(demands)),
            "TimeSlicing": 1 / max(1, len(demands)),
            "Exclusive": 1.0,
        }
        for job in self.jobs.values():
            job.rate = shared[self.mode] if job.demand else 1.0


def _out_of_memory(asked: int, capacity: int, free: int) -> str:
    """Say it as PyTorch does: https://docs.pytorch.org/docs/stable/notes/faq.html."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked / GIB:.2f} GiB. "
        f"GPU 0 has a total capacity of {capacity / GIB:.2f} GiB "
        f"of which {free / GIB:.2f} GiB is free."
    )
