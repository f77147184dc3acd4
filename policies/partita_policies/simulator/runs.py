"""The runs of a simulation: jobs on their GPUs, of which the native library keeps the progress.

The structures are those of `native/simulator.c`, which has the paces of the runs, the parts of
their applications, and the memory in use.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, addressof, c_char, c_double, c_int32, c_int64, c_void_p
from dataclasses import fields
from functools import partial
from itertools import accumulate, islice
from math import inf, isfinite
from operator import attrgetter
from typing import cast

from partita_policies.interference import AMOUNTS, MOST_JOBS, SHARING_CODES
from partita_policies.native import library
from partita_policies.running_jobs import running_job
from partita_policies.simulator.results import Reading
from partita_policies.simulator.tasks import Task, mean_step, packed
from partita_policies.types import GPU, Job, Sharing

__all__ = ["Device", "Run", "Runs", "speed_of"]

_FIXED = attrgetter(*[field.name for field in fields(GPU)][:-1])  # `running` comes last
_gpu = cast("Callable[..., GPU]", GPU)
"""Called with positional arguments: keyword arguments take 1.5 times as long."""
_MEMORY = AMOUNTS.index("memory")
_READING = [("time", "f8"), ("busy", "f8"), ("memory", "i8"), ("gpu", "i4"), ("unused", "i4")]
"""Fields of a reading in the native library, as types of numpy."""
_READING_SIZE = sum(int(kind[1:]) for _, kind in _READING)
_READINGS = 10_000
"""Readings for which the native library has room, besides two of each GPU: `settle` adds at most
one of each."""


class _Place(Structure):
    _fields_ = (("run", c_int32), ("gpu", c_int32), ("limit", c_double), ("pace", c_double))


class _Run(Structure):
    _fields_ = (
        ("step", c_void_p),
        *((name, c_double) for name in ("duration", "cache", "done", "since", "pace", "ends")),
        *((name, c_int64) for name in ("memory", "ceiling")),
        *((name, c_int32) for name in ("steps", "part", "next", "place", "places", "active")),
    )


class _GPU(Structure):
    _fields_ = (
        *((name, c_double) for name in ("speed", "link", "next")),
        *((name, c_int64) for name in ("memory", "version")),
        *((name, c_int32) for name in ("count", "changed")),
        ("places", c_int32 * MOST_JOBS),
    )


class _Simulation(Structure):
    _fields_ = (
        *((name, c_double) for name in ("now", "horizon")),
        ("versions", c_int64),
        *((name, c_int32) for name in ("sharing", "gpus", "changes", "asked", "answered")),
        *((name, c_int32) for name in ("finishes", "readings", "most_readings")),
        *((name, c_void_p) for name in ("gpu", "run", "place", "changed", "asking")),
        *((name, c_void_p) for name in ("finished", "finish", "reading")),
    )


_native = library()
_native.begin_run.argtypes = (c_void_p, c_int32, c_double)
_native.end_run.argtypes = (c_void_p, c_int32)
_native.begin_run.restype = _native.end_run.restype = None
_native.settle.argtypes = (c_void_p,)
_native.advance.argtypes = (c_void_p, c_double, c_int32)


def speed_of(gpu: GPU, speeds: Mapping[str, float]) -> float:
    """Return the speed of a GPU among those of products; 1 for another product.

    Raises
    ------
    ValueError
        The speed is not a number above 0.
    """
    speed = speeds.get(gpu.product, 1.0)
    if not (isfinite(speed) and speed > 0):
        raise ValueError(f"speeds: {gpu.product}: {speed}: expected a number above 0")
    return speed


class Device:
    """A GPU and the runs on it, by job and in the order of their starts."""

    __slots__ = ("_fixed", "gpu", "row", "runs", "speed")

    def __init__(self, gpu: GPU, speed: float, row: int) -> None:
        self.gpu, self.speed, self.row = gpu, speed, row
        self._fixed = _FIXED(gpu)
        self.runs: dict[str, Run] = {}

    def view(self) -> GPU:
        """Return the GPU as it appears in snapshots."""
        return _gpu(*self._fixed, tuple([run.holder for run in self.runs.values()]))


class Run:
    """A job on its GPUs.

    Parameters
    ----------
    amounts
        Those of the steps of its application.
    state
        What the native library knows of it.
    limited
        Whether its allocation limits its memory, as under MPS.
    """

    __slots__ = ("amounts", "ceiling", "devices", "guarantee", "holder", "job", "start", "state")

    def __init__(
        self,
        job: Job,
        amounts: "array[float]",
        devices: Sequence[Device],
        state: _Run,
        start: float,
        *,
        limited: bool,
    ) -> None:
        self.job, self.amounts = job, amounts
        self.holder = running_job(job, start)
        """The job as it appears in snapshots."""
        self.devices = devices
        self.state = state
        self.start = start
        whole = min([device.gpu.memory for device in devices])
        self.guarantee = (whole if job.alone else job.memory) if limited else 0
        """Bytes on each GPU up to which it is not evicted."""
        self.ceiling = max(self.guarantee, min(job.memory_limit, whole)) if limited else whole
        """Bytes on each GPU above which it runs out of memory."""

    @property
    def memory(self) -> int:
        """Bytes in use on each GPU."""
        memory: int = self.state.memory
        return memory

    @property
    def wanted(self) -> int:
        """Bytes that its current part requests."""
        return int(self.amounts[self.state.part * len(AMOUNTS) + _MEMORY])

    def progress(self, now: float) -> float:
        """Return the seconds of work done."""
        state = self.state
        done: float = state.done
        return done + (now - state.since) / state.pace if state.pace else done

    def seconds_alone(self, now: float) -> float:
        """Return the seconds of the job alone on its GPUs; of a lasting job, of its work so far."""
        work = self.progress(now) if self.job.lasting else self.state.duration
        return work / min([device.speed for device in self.devices])


class Runs:
    """All runs of a simulation.

    Parameters
    ----------
    tasks
        The jobs; each runs at most once at a time.
    devices
        The GPUs, without runs.
    now
        When the simulation begins.
    """

    def __init__(
        self, tasks: Sequence[Task], devices: Sequence[Device], sharing: Sharing, now: float = 0.0
    ) -> None:
        self.of: dict[str, Run] = {}
        """By job, in the order of their starts."""
        self._limited = sharing is Sharing.MPS
        self._tasks = tasks
        self._row = {task.job.id: row for row, task in enumerate(tasks)}
        self._first = [0, *accumulate([min(task.job.gpus, len(devices)) for task in tasks])]
        """The first of the places of each job."""
        most = 2 * len(devices) + _READINGS
        self._devices = devices
        self._gpu, self._run = (_GPU * len(devices))(), (_Run * len(tasks))()
        self._place = (_Place * self._first[-1])()
        self._finished, self._finish = (c_int32 * len(tasks))(), (c_double * len(tasks))()
        self._reading = (c_char * (most * _READING_SIZE))()
        self._changed, self._asking = (c_int32 * len(devices))(), (c_int32 * len(tasks))()
        self._state = _Simulation(
            now=now,
            sharing=SHARING_CODES[sharing],
            gpus=len(devices),
            most_readings=most,
            gpu=addressof(self._gpu),
            run=addressof(self._run),
            place=addressof(self._place),
            changed=addressof(self._changed),
            asking=addressof(self._asking),
            finished=addressof(self._finished),
            finish=addressof(self._finish),
            reading=addressof(self._reading),
        )
        self._address = addressof(self._state)
        self._readings = bytearray()
        self._views = [device.gpu for device in devices]
        self._outdated: set[Device] = set()
        for one, device in zip(self._gpu, devices, strict=True):
            one.speed, one.link = device.speed, device.gpu.pcie_bandwidth
            one.memory, one.next = device.gpu.memory, inf

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        now: float = self._state.now
        return now

    @property
    def horizon(self) -> float:
        """End of this instant: what happens until then is simultaneous."""
        horizon: float = self._state.horizon
        return horizon

    def views(self) -> list[GPU]:
        """Return the GPUs as they appear in snapshots; those without changes are the same."""
        for device in self._outdated:
            self._views[device.row] = device.view()
        self._outdated.clear()
        return self._views

    def start(
        self, job: Job, devices: Sequence[Device], *, since: float | None = None, done: float = 0.0
    ) -> Run:
        """Start a job; its memory and the paces on its GPUs are set by `settle`.

        Parameters
        ----------
        since
            When it started, if not now.
        done
            Seconds of its work that are done.
        """
        row = self._row[job.id]
        truth, state = self._tasks[row].truth, self._run[row]
        amounts = packed([mean_step(truth)]) if job.lasting else truth.amounts
        start = self.now if since is None else since
        run = Run(job, amounts, devices, state, start, limited=self._limited)
        state.duration = inf if job.lasting else truth.duration
        state.step, state.steps = amounts.buffer_info()[0], len(amounts) // len(AMOUNTS)
        state.cache, state.ceiling = truth.cache, run.ceiling
        state.place, state.places = self._first[row], len(devices)
        for number, device in enumerate(devices, start=self._first[row]):
            place = self._place[number]
            place.gpu = device.row
            place.limit = device.gpu.thread_share(100 if job.alone else job.thread_percent)
            device.runs[job.id] = run
            self._outdated.add(device)
            if len(device.runs) > MOST_JOBS:
                raise ValueError(f"{device.gpu.id}: expected at most {MOST_JOBS} jobs at once")
        self.of[job.id] = run
        _native.begin_run(self._address, row, done)
        return run

    def end(self, run: Run) -> None:
        """End a run; the paces on its GPUs are set by `settle`."""
        self._forget(run)
        _native.end_run(self._address, self._row[run.job.id])

    def _forget(self, run: Run) -> None:
        del self.of[run.job.id]
        for device in run.devices:
            del device.runs[run.job.id]
            self._outdated.add(device)

    def settle(self) -> Run | None:
        """Grant memory requests, then set the paces on all GPUs with changes.

        Returns
        -------
        Run or None
            The first run whose request exceeds its ceiling or the free memory. Call it again once
            the run, or enough others, have been ended.
        """
        self._make_room()
        row = _native.settle(self._address)
        return None if row < 0 else self.of[self._tasks[row].job.id]

    def advance(self, until: float, finishes: int) -> bool:
        """Handle events up to the next memory request for `settle`, and at most to a time.

        Parameters
        ----------
        finishes
            Stop after so many runs have finished, too; 0: after one event of any kind.

        Returns
        -------
        bool
            Whether there were any events.
        """
        self._make_room()
        any_events: bool = _native.advance(self._address, until, finishes)
        return any_events

    def finished(self) -> list[tuple[Run, float]]:
        """Return the runs that have finished in the last call of `advance`, with the times."""
        found = []
        for number in range(self._state.finishes):
            run = self.of[self._tasks[self._finished[number]].job.id]
            self._forget(run)
            found.append((run, self._finish[number]))
        return found

    def timeline(self) -> dict[str, tuple[Reading, ...]]:
        """Return the readings of each GPU so far; of several at one time the last one."""
        import numpy as np  # noqa: PLC0415 - for figures of simulations alone

        self._keep_readings()
        rows = np.frombuffer(self._readings, np.dtype(_READING))
        rows = rows[rows["gpu"].argsort(kind="stable")]
        last = np.ones(len(rows), np.bool_)
        last[:-1] = (rows["gpu"][1:] != rows["gpu"][:-1]) | (rows["time"][1:] != rows["time"][:-1])
        rows = rows[last]
        columns = [rows[name].tolist() for name in Reading._fields]
        readings = map(partial(tuple.__new__, Reading), zip(*columns, strict=True))
        counts = np.bincount(rows["gpu"], minlength=len(self._devices)).tolist()
        return {
            device.gpu.id: tuple(islice(readings, count))
            for device, count in zip(self._devices, counts, strict=True)
        }

    def _make_room(self) -> None:
        if self._state.readings > _READINGS:
            self._keep_readings()

    def _keep_readings(self) -> None:
        size = self._state.readings * _READING_SIZE
        self._readings += memoryview(self._reading)[:size]
        self._state.readings = 0
