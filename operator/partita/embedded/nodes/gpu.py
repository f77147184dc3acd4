"""The physics of one simulated GPU, in virtual time: who runs how fast, and whose memory fits.

Nothing here knows of Kubernetes or of the wall clock. What it assumes:

- A job's memory and utilisation follow its own progress, so a job that is slowed down also grows
  later. Utilisation is the share of the GPU that the job would use alone.
- **MPS**: kernels of all jobs run side by side. While the demands sum to at most 100 % nobody is
  slowed; above that everybody with a demand is, by the same factor. An active thread percentage
  caps a job's demand, and so its speed. The one measured table at hand
  (`containers-and-mps.txt`, table 1) agrees for kernels that leave the cache alone (two together
  1.2 to 2.1 times as fast as in turns) and disagrees for large cache-sensitive ones (3.6 times
  slower): there is no cache term here; `partita_policies.simulator` has one.
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

__all__ = ["GPU", "Ended", "JobUsage", "Mode", "Usage", "Work"]

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
    thread_percent
        Percent of the GPU's threads that MPS lets it use.
    managed
        Whether its memory can move to the node's (unified memory).
    """

    key: str
    duration: float
    memory: tuple[int, ...]
    utilisation: tuple[float, ...]
    memory_limit: int | None = None
    thread_percent: float = FULL
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's end: `time` in virtual seconds, and `error` when memory was refused to it."""

    key: str
    time: float
    peak: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """One job's memory in bytes: now, and the most so far."""

    memory: int
    peak: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The GPU's memory in bytes and utilisation in percent now, and each job's share."""

    memory: int
    utilisation: float
    jobs: dict[str, JobUsage]


@dataclass(frozen=True, slots=True)
class _Phase:
    until: float
    memory: int
    utilisation: float


class _Job:
    """A job on the GPU: its phases, and how many of its seconds alone are done."""

    def __init__(self, work: Work, done: float) -> None:
        self.work = work
        self.phases = _phases(work)
        self.done = min(done, work.duration)
        last = len(self.phases) - 1
        self.index = next((i for i, p in enumerate(self.phases) if self.done < p.until), last)
        self.memory = 0
        self.peak = 0
        self.rate = 1.0

    @property
    def phase(self) -> _Phase:
        return self.phases[self.index]

    @property
    def demand(self) -> float:
        return min(self.phase.utilisation, self.work.thread_percent)


def _phases(work: Work) -> tuple[_Phase, ...]:
    """Cut a job where its memory or its utilisation changes."""
    memory, utilisation = len(work.memory), len(work.utilisation)
    # Exact positions, in units of 1/lcm of the duration, so that equal cuts are one cut.
    parts = math.lcm(memory, utilisation)
    cuts = sorted(
        set(range(0, parts, parts // memory)) | set(range(0, parts, parts // utilisation))
    )
    return tuple(
        _Phase(
            until=work.duration * end / parts if end < parts else work.duration,
            memory=work.memory[cut * memory // parts],
            utilisation=work.utilisation[cut * utilisation // parts],
        )
        for cut, end in zip(cuts, [*cuts[1:], parts], strict=True)
    )


class GPU:
    """One GPU and the jobs on it.

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
        self._jobs: dict[str, _Job] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

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
        if work.key in self._jobs:
            raise ValueError(f"{work.key} runs on this GPU already")
        job = _Job(work, done)
        self._jobs[work.key] = job
        ended = self._ask(job)
        self._set_rates()
        return ended

    def stop(self, key: str) -> None:
        """End a job now, whatever it has done; no effect if it does not run."""
        if self._jobs.pop(key, None) is not None:
            self._set_rates()

    def next_event(self) -> float:
        """Tell when a job next changes its demand or ends; infinity when there is none."""
        return min((self._due(job) for job in self._jobs.values()), default=math.inf)

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
        while self._jobs:
            job = min(self._jobs.values(), key=self._due)
            at = self._due(job)
            if at > to:
                break
            self._pass(at)
            job.done = job.phase.until
            end = self._next_phase(job)
            if end is not None:
                ended.append(end)
            self._set_rates()
        self._pass(to)
        return ended

    def usage(self) -> Usage:
        """Tell what is in use now."""
        jobs = self._jobs.values()
        # A job's share is its demand times its speed; for TimeSlicing that is its share of slices.
        return Usage(
            memory=min(self.memory, sum(job.memory for job in jobs)),
            utilisation=min(FULL, sum(job.phase.utilisation * job.rate for job in jobs)),
            jobs={job.work.key: JobUsage(job.memory, job.peak) for job in jobs},
        )

    def _due(self, job: _Job) -> float:
        return self.now + max(0.0, job.phase.until - job.done) / job.rate

    def _pass(self, to: float) -> None:
        if to <= self.now:
            return
        for job in self._jobs.values():
            job.done = min(job.phase.until, job.done + (to - self.now) * job.rate)
        self.now = to

    def _next_phase(self, job: _Job) -> Ended | None:
        if job.index + 1 < len(job.phases):
            job.index += 1
            return self._ask(job)
        del self._jobs[job.work.key]
        return Ended(job.work.key, self.now, job.peak)

    def _ask(self, job: _Job) -> Ended | None:
        """Give a job the memory of its phase, or end it."""
        wanted, limit = job.phase.memory, job.work.memory_limit
        fixed = sum(j.memory for j in self._jobs.values() if not j.work.managed and j is not job)
        free = self.memory - fixed
        if limit is not None and wanted > limit:
            error = _out_of_memory(wanted - job.memory, limit, limit - job.memory)
        elif wanted > free and not job.work.managed:
            error = _out_of_memory(wanted - job.memory, self.memory, free - job.memory)
        else:
            job.memory = wanted
            job.peak = max(job.peak, wanted)
            return None
        del self._jobs[job.work.key]
        return Ended(job.work.key, self.now, job.peak, error)

    def _set_rates(self) -> None:
        jobs = [job for job in self._jobs.values() if job.demand > 0]
        for job in self._jobs.values():
            job.rate = 1.0
        match self.mode:
            case "MPS":
                demand = sum(job.demand for job in jobs)
                for job in jobs:
                    job.rate = job.demand / job.phase.utilisation * min(1.0, FULL / demand)
            case "TimeSlicing":
                for job in jobs:
                    job.rate = 1 / len(jobs)
            case "Exclusive":
                pass
        total = sum(job.memory for job in self._jobs.values())
        for job in self._jobs.values():
            if job.work.managed and total > self.memory:
                job.rate *= self.memory / total


def _out_of_memory(asked: int, capacity: int, free: int) -> str:
    """Say it as PyTorch does: https://docs.pytorch.org/docs/stable/notes/faq.html."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked / GIB:.2f} GiB. "
        f"GPU 0 has a total capacity of {capacity / GIB:.2f} GiB "
        f"of which {free / GIB:.2f} GiB is free."
    )
