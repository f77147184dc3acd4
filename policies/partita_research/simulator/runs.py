"""State of running jobs: progress, current load, and the co-located jobs on each GPU."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import inf
from operator import attrgetter
from typing import cast

from partita_policies.interference import Load, load_of, slowdowns, utilization
from partita_policies.types import GPU, Job, RunningJob, Sharing, Step
from partita_research.simulator.lasting import mean_step
from partita_research.simulator.results import Reading
from partita_research.simulator.tasks import Application

__all__ = ["Course", "Device", "Run", "course_of"]

_FIXED = attrgetter(*[field.name for field in fields(GPU)][:-1])  # `running` comes last
_gpu = cast("Callable[..., GPU]", GPU)
_SOURCE = {f.name: "id" if f.name == "job" else f.name for f in fields(RunningJob)}
"""The attribute of a job from which each field of a `RunningJob` is taken."""
_STARTED = list(_SOURCE).index("started")
_BEFORE = attrgetter(*list(_SOURCE.values())[:_STARTED])
_AFTER = attrgetter(*list(_SOURCE.values())[_STARTED + 1 :])
_running_job = cast("Callable[..., RunningJob]", RunningJob)
"""Called with positional arguments, like `_gpu`: keyword arguments take 1.5 times as long."""


class Course:
    """The work of an application, divided into parts of constant load.

    Parameters
    ----------
    lasting
        Whether the application never ends and always has its mean load.
    """

    __slots__ = ("_loads", "application", "bounds", "memory", "steps")

    def __init__(self, application: Application, *, lasting: bool = False) -> None:
        self.application = application
        self.steps: list[Step] = []
        self.bounds: list[float] = []
        """End of each part in seconds of work; the last one is exactly the duration."""
        if lasting:
            self.steps, self.bounds = [mean_step(application)], [inf]
        steps = () if lasting else application.steps
        for index, step in enumerate(steps, start=1):
            if not self.steps or step != self.steps[-1]:
                self.steps.append(step)
                self.bounds.append(0.0)
            self.bounds[-1] = application.duration * index / len(steps)
        self.memory = [step.memory for step in self.steps]
        self._loads: dict[tuple[int, int, int], list[Load]] = {}

    def loads(self, gpu: GPU, thread_percent: int) -> list[Load]:
        """Return the load of each part on a GPU of this kind."""
        key = (gpu.pcie_bandwidth, gpu.sm_partitions, thread_percent)
        loads = self._loads.get(key)
        if loads is None:
            cache = self.application.cache
            loads = self._loads[key] = [
                load_of(step, gpu, cache=cache, thread_percent=thread_percent)
                for step in self.steps
            ]
        return loads


def course_of(
    application: Application, known: dict[tuple[int, bool], Course], *, lasting: bool = False
) -> Course:
    """Return the course of an application, cached in `known` by object identity."""
    key = (id(application), lasting)
    course = known.get(key)
    if course is None:
        course = known[key] = Course(application, lasting=lasting)
    return course


class Device:
    """A GPU and the runs on it, in the order of their starts."""

    __slots__ = (
        "_fixed",
        "_loads",
        "gpu",
        "memory",
        "readings",
        "runs",
        "speed",
        "version",
        "view",
    )

    def __init__(self, gpu: GPU, speed: float) -> None:
        self.gpu = gpu
        self._fixed = _FIXED(gpu)
        self.view = gpu
        """The GPU as it appears in snapshots."""
        self._loads: list[Load] = []
        """Current load of each run."""
        self.speed = speed
        self.runs: list[Run] = []
        self.memory = 0
        """Bytes in use."""
        self.readings: list[Reading] = []
        self.version = 0
        """Version of its valid calendar entry; entries with another version are ignored."""

    def add(self, run: "Run") -> None:
        """Start a run here."""
        self.runs.append(run)
        self._see()

    def remove(self, run: "Run") -> None:
        """End a run here."""
        self.runs.remove(run)
        self._see()

    def _see(self) -> None:
        self.view = _gpu(*self._fixed, tuple([run.holder for run in self.runs]))

    def set_paces(self, now: float, sharing: Sharing) -> None:
        """Set the pace of its runs from their current loads."""
        self._loads = [
            run.loads[0][run.part] if len(run.loads) == 1 else run.load(self) for run in self.runs
        ]
        slow = slowdowns(self._loads, sharing)
        self.memory = sum([run.memory for run in self.runs])
        for run, slowdown in zip(self.runs, slow, strict=True):
            run.set_pace(self, slowdown / self.speed, now)

    def neighbours(self) -> "list[Device]":
        """Return the GPUs of the jobs that also run on other GPUs: paces change there, too."""
        return [other for run in self.runs if len(run.devices) > 1 for other in run.devices]

    def next_event(self) -> float:
        """Return the end of the first part of a run to end here; infinity if there is none."""
        return min([run.ends for run in self.runs], default=inf)

    def read(self, time: float, sharing: Sharing) -> None:
        """Record the current utilisation and memory."""
        slow = [run.pace * self.speed for run in self.runs]
        busy = utilization(self._loads, slow, sharing)
        if self.readings and self.readings[-1].time == time:
            self.readings.pop()
        self.readings.append(Reading(time, busy, self.memory))


class Run:
    """A job on its GPUs.

    Parameters
    ----------
    limited
        Whether its allocation limits its memory, as under MPS.
    """

    __slots__ = (
        "ceiling",
        "course",
        "devices",
        "done",
        "ends",
        "guarantee",
        "holder",
        "job",
        "loads",
        "memory",
        "pace",
        "paces",
        "part",
        "since",
        "start",
        "wanted",
    )

    def __init__(
        self,
        job: Job,
        course: Course,
        devices: Sequence[Device],
        now: float,
        *,
        limited: bool = True,
    ) -> None:
        self.job = job
        self.holder = _running_job(*_BEFORE(job), now, *_AFTER(job))
        """The job as it appears in snapshots."""
        self.course = course
        self.devices = tuple(devices)
        threads = 100 if job.alone else job.thread_percent
        self.loads = [course.loads(device.gpu, threads) for device in devices]
        whole = min(device.gpu.memory for device in devices)
        self.guarantee = (whole if job.alone else job.memory) if limited else 0
        """Bytes on each GPU up to which it is not evicted."""
        self.ceiling = max(self.guarantee, min(job.memory_limit, whole)) if limited else whole
        """Bytes on each GPU above which it runs out of memory."""
        self.start = now
        self.part = 0
        self.memory = 0
        """Bytes in use on each GPU."""
        self.wanted = course.memory[0]
        """Bytes that its current part requests."""
        self.done = 0.0
        """Seconds of work done at `since`."""
        self.since = now
        self.paces = [0.0] * len(devices)
        self.pace = 0.0
        """Seconds that one second of work takes now."""
        self.ends = inf
        """End of its current part at this pace."""

    def seconds_alone(self, now: float) -> float:
        """Return the seconds of the job alone on its GPUs; of a lasting job, of its work so far."""
        work = self.progress(now) if self.job.lasting else self.course.application.duration
        return work / min(device.speed for device in self.devices)

    def load(self, device: Device) -> Load:
        """Return its current load on a GPU."""
        return self.loads[self.devices.index(device)][self.part]

    def progress(self, now: float) -> float:
        """Return the seconds of work done."""
        return self.done + (now - self.since) / self.pace if self.pace else self.done

    def set_pace(self, device: Device, pace: float, now: float) -> None:
        """Set the pace that one of its GPUs permits."""
        if len(self.devices) > 1:  # the slowest GPU determines the pace
            self.paces[self.devices.index(device)] = pace
            pace = max(self.paces)
        if pace == self.pace and self.ends != inf:
            return
        if self.pace:
            self.done += (now - self.since) / self.pace
        self.since = now
        self.pace = pace
        left = self.course.bounds[self.part] - self.done
        self.ends = now + left * pace if left > 0 else now

    def next_part(self, now: float) -> bool:
        """Advance to the next part; return whether there is one."""
        self.done = self.course.bounds[self.part]
        self.since = now
        self.ends = inf
        self.part += 1
        if self.part == len(self.course.bounds):
            return False
        self.wanted = self.course.memory[self.part]
        return True
