"""Jobs while they run: how far each is, what it asks for now, and what shares a GPU with it."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import inf
from operator import attrgetter
from typing import cast

from partita_policies.interference import Load, load_of, slowdowns, utilization
from partita_policies.types import GPU, Job, RunningJob, Sharing, Step
from partita_research.simulator.results import Reading
from partita_research.simulator.tasks import Application

__all__ = ["Course", "Device", "Run", "course_of"]

_FIXED = attrgetter(*[field.name for field in fields(GPU)][:-1])  # `running` comes last
_gpu = cast("Callable[..., GPU]", GPU)
_SOURCE = {f.name: "id" if f.name == "job" else f.name for f in fields(RunningJob)}
"""The attribute of a job from which each field of a `RunningJob` is taken."""
_ELAPSED = list(_SOURCE).index("elapsed")
_BEFORE = attrgetter(*list(_SOURCE.values())[:_ELAPSED])
_AFTER = attrgetter(*list(_SOURCE.values())[_ELAPSED + 1 :])
_running_job = cast("Callable[..., RunningJob]", RunningJob)
"""By position, as above: with names it takes half as long again, and most time goes into this."""


class Course:
    """The parts of an application's work in which it asks for the same."""

    __slots__ = ("_loads", "application", "bounds", "memory", "steps")

    def __init__(self, application: Application) -> None:
        self.application = application
        self.steps: list[Step] = []
        self.bounds: list[float] = []
        """Seconds of work at which each part ends; the last is exactly the duration."""
        count = len(application.steps)
        for index, step in enumerate(application.steps, start=1):
            if not self.steps or step != self.steps[-1]:
                self.steps.append(step)
                self.bounds.append(0.0)
            self.bounds[-1] = application.duration * index / count
        self.memory = [step.memory for step in self.steps]
        self._loads: dict[tuple[int, int], list[Load]] = {}

    def loads(self, gpu: GPU, thread_percent: int) -> list[Load]:
        """Return what each part asks of such a GPU."""
        key = (gpu.pcie_bandwidth, thread_percent)
        loads = self._loads.get(key)
        if loads is None:
            cache = self.application.cache
            loads = self._loads[key] = [
                load_of(step, gpu, cache=cache, thread_percent=thread_percent)
                for step in self.steps
            ]
        return loads


def course_of(application: Application, known: dict[int, Course]) -> Course:
    """Return the course of an application, from those known where it is the same object."""
    course = known.get(id(application))
    if course is None:
        course = known[id(application)] = Course(application)
    return course


class Device:
    """A GPU and what runs on it, in the order of their starts."""

    __slots__ = ("_fixed", "_loads", "gpu", "memory", "readings", "runs", "speed", "version")

    def __init__(self, gpu: GPU, speed: float) -> None:
        self.gpu = gpu
        self._fixed = _FIXED(gpu)
        self._loads: list[Load] = []
        """What its runs ask for."""
        self.speed = speed
        self.runs: list[Run] = []
        self.memory = 0
        """Bytes in use."""
        self.readings: list[Reading] = []
        self.version = 0
        """Of its entry in the calendar: others are void."""

    def view(self, now: float) -> GPU:
        """Return what a policy sees of it."""
        if not self.runs:
            return self.gpu
        return _gpu(*self._fixed, tuple([run.running_job(now) for run in self.runs]))

    def set_paces(self, now: float, sharing: Sharing) -> None:
        """Let its runs go on at the pace that this GPU now allows."""
        self._loads = [
            run.loads[0][run.part] if len(run.loads) == 1 else run.load(self) for run in self.runs
        ]
        slow = slowdowns(self._loads, sharing)
        self.memory = sum([run.memory for run in self.runs])
        for run, slowdown in zip(self.runs, slow, strict=True):
            run.set_pace(self, slowdown / self.speed, now)

    def neighbours(self) -> "list[Device]":
        """Return the GPUs of those jobs that run here and elsewhere: their paces change, too."""
        return [other for run in self.runs if len(run.devices) > 1 for other in run.devices]

    def next_event(self) -> float:
        """Return when the next part of a run ends here; infinity when none does."""
        return min([run.ends for run in self.runs], default=inf)

    def read(self, time: float, sharing: Sharing) -> None:
        """Record how busy it is from now on."""
        slow = [run.pace * self.speed for run in self.runs]
        busy = utilization(self._loads, slow, sharing)
        if self.readings and self.readings[-1].time == time:
            self.readings.pop()
        self.readings.append(Reading(time, busy, self.memory))


class Run:
    """A job on its GPUs."""

    __slots__ = (
        "_after",
        "_before",
        "course",
        "devices",
        "done",
        "ends",
        "job",
        "limit",
        "loads",
        "memory",
        "pace",
        "paces",
        "part",
        "since",
        "start",
        "wanted",
    )

    def __init__(self, job: Job, course: Course, devices: Sequence[Device], now: float) -> None:
        self.job = job
        self._before, self._after = _BEFORE(job), _AFTER(job)
        self.course = course
        self.devices = tuple(devices)
        threads = 100 if job.alone else job.thread_percent
        self.loads = [course.loads(device.gpu, threads) for device in devices]
        self.limit = min(device.gpu.memory for device in devices) if job.alone else job.memory
        """Bytes that it may use of each GPU where there are limits."""
        self.start = now
        self.part = 0
        self.memory = 0
        """Bytes that it uses of each GPU."""
        self.wanted = course.memory[0]
        """Bytes that its part asks for."""
        self.done = 0.0
        """Seconds of work done at `since`."""
        self.since = now
        self.paces = [0.0] * len(devices)
        self.pace = 0.0
        """Seconds that a second of its work takes now."""
        self.ends = inf
        """When its part ends at this pace."""

    @property
    def alone(self) -> float:
        """Seconds that it would take alone on its GPUs."""
        return self.course.application.duration / min(device.speed for device in self.devices)

    def load(self, device: Device) -> Load:
        """Return what it asks of a GPU now."""
        return self.loads[self.devices.index(device)][self.part]

    def progress(self, now: float) -> float:
        """Return the seconds of work done."""
        return self.done + (now - self.since) / self.pace if self.pace else self.done

    def set_pace(self, device: Device, pace: float, now: float) -> None:
        """Set how fast one of its GPUs lets it be."""
        if len(self.devices) > 1:  # it goes at the pace of the slowest
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
        """Go on to the next part; say whether there is one."""
        self.done = self.course.bounds[self.part]
        self.since = now
        self.ends = inf
        self.part += 1
        if self.part == len(self.course.bounds):
            return False
        self.wanted = self.course.memory[self.part]
        return True

    def running_job(self, now: float) -> RunningJob:
        """Return what a policy sees of it."""
        return _running_job(*self._before, now - self.start, *self._after)
