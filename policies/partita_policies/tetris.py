"""Multi-resource packing by alignment, weighted against short remaining work.

Source: R. Grandl, G. Ananthanarayanan, S. Kandula, S. Rao, A. Akella, "Multi-Resource Packing
for Cluster Schedulers", SIGCOMM 2014 (https://doi.org/10.1145/2619239.2626334). Of the tasks that
fit a machine on every resource, the one with the highest score starts. The score is the dot
product of the task's demands and the machine's free resources, both as shares of the machine,
minus epsilon times the remaining work (duration times demands, summed over the resources).
Epsilon is the mean of the first term divided by the mean of the second, so that both have the same
weight. The paper's text was not available. The rule is that of an implementation for an ICPP 2024
paper, "average as recommended by paper" (`scheduler/tetris.py` of
https://github.com/DonneyF/icpp-2024-mris). As here, it takes the means over the present tasks. It
adds the inverse of the remaining work instead.

The resources are the requested GPU memory and, if the application has a profile, what co-located
jobs contend for (`partita_policies.interference`): their shares of the SMs' throughput, of the
memory's bandwidth and of the PCIe link. Departures from the paper:

- GPU utilisation, the share of the time in which a kernel runs, is no resource by default: under
  MPS kernels of several jobs run at the same time. With `resources: measured` GPU utilisation and
  SM occupancy are resources of which a GPU has 100 %, as CPUs are in the paper. Jobs that would
  share a GPU well then wait for an idle one.
- Means, not peaks, of the profile are the default. Nearly every training job needs all SMs in some
  step, so that with peaks few jobs would share a GPU.
- Profiled resources are constraints only beside other jobs that end, so no job is too large for a
  GPU that is idle or has only services.
- A node's CPU and memory, if known, are constraints, but not part of the score.
- Of several machines the one with the fewest jobs comes first, then the one with the most free
  memory.
- Epsilon is computed from the mean alignment with an idle GPU.
- Only the first `window` job classes that fit are compared, and of these only the highest
  priority. There is no fairness parameter, because the queue's order is already fair.
- A job on several GPUs is scored on one of them.
"""

from collections.abc import Sequence
from ctypes import CDLL, c_double, c_int, c_void_p
from functools import cache
from itertools import count
from operator import attrgetter
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from partita_policies.capacity import FreeCapacity
from partita_policies.incremental import CapacityCache, Interned, Memo
from partita_policies.interference import sm_share
from partita_policies.native import library
from partita_policies.native.structures import FREE_GPU, KIND, asked
from partita_policies.types import GPU, Job, Parameters, Placement, Profile, RunningJob, Snapshot

__all__ = ["Tetris", "TetrisParameters"]

_Usage = tuple[float, float, float]
"""Demand according to a profile: percent of the SMs' throughput or of GPU utilisation, percent of
the memory's bandwidth or of SM occupancy, PCIe bytes per second."""
_IDLE: _Usage = (0.0, 0.0, 0.0)
_REQUEST = attrgetter(
    *("memory", "cpu", "host_memory", "host_storage", "slots", "clients", "alone", "gpus"),
    *("products", "nodes", "priority", "duration"),
)
_JOB = np.dtype(
    [
        *(("asks", KIND), ("uses", "f8", 3), ("seconds", "f8")),
        *((name, "i4") for name in ("gpus", "priority", "number", "shape")),
    ]
)
"""`TetrisJob` of `native/tetris.c`."""
_GPU = np.dtype(
    [
        *(("free", FREE_GPU), ("left", "f8", 3), ("bandwidth", "f8")),
        *((name, "i4") for name in ("shared", "open", "node", "unused")),
    ]
)
"""`TetrisGPU` of `native/tetris.c`."""
_UNLIMITED = 1e300
_MOST_USAGES = 10_000
"""Profiles of which the usage is kept."""


@cache
def _native() -> CDLL:
    loaded = library()
    loaded.tetris.argtypes = [
        *(c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_int, c_double, c_void_p)
    ]
    loaded.tetris.restype = c_int
    return loaded


class TetrisParameters(Parameters):
    """Parameters of `Tetris`."""

    remaining_work: float = Field(
        default=1.0,
        ge=0,
        description=(
            "Weight of short remaining work against packing (the paper's m): 0 packs alone, "
            "large values approach shortest job first."
        ),
    )
    usage: Literal["mean", "peak"] = Field(
        default="mean",
        description="Whether a job is assumed to need the mean or the peak of its profile.",
    )
    resources: Literal["contended", "measured"] = Field(
        default="contended",
        description=(
            "What a profile says that a job takes of a GPU besides memory and PCIe: its shares of "
            "the SMs' throughput and of the memory's bandwidth, for which jobs contend, or, as in "
            "the paper, what was measured: GPU utilisation and SM occupancy, each 100 % of a GPU."
        ),
    )
    window: int = Field(
        default=12,
        ge=1,
        description="How many fitting job classes, from the front of the queue, are compared.",
    )


class _JobClass:
    """Jobs with the same demand and request.

    `row` has the bytes of a `_JOB`, whose shape is 0 if it may use all GPUs. `like` is one of the
    jobs.
    """

    __slots__ = ("__weakref__", "like", "row")

    def __init__(self, job: Job, usage: _Usage, number: int) -> None:
        self.like = job
        seconds = np.nan if job.duration is None else job.duration
        limited = bool(job.products or job.nodes)
        row = (asked(job), usage, seconds, job.gpus, job.priority, number, limited)
        self.row = np.array([row], _JOB).tobytes()


class Tetris:
    """Give the least loaded GPU the job whose demands align best with its free resources."""

    parameters: ClassVar[type[Parameters]] = TetrisParameters

    def __init__(self, parameters: TetrisParameters) -> None:
        self._parameters = parameters
        self._usages: dict[int, tuple[Profile, _Usage]] = {}
        numbers = count()
        self._job_classes = Interned[Job, _JobClass](
            key=lambda job: (self._usage(job), _REQUEST(job)),
            compute=lambda job: _JobClass(job, self._usage(job), next(numbers) % 2**31),
        )
        self._gpu_rows = Memo(self._gpu_row)
        self._capacity = CapacityCache()

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start the best job of the least loaded GPU, until none has room for any."""
        self._job_classes.begin()
        self._gpu_rows.begin()
        with self._capacity.of(snapshot) as capacity:
            waiting = capacity.without_gpus(snapshot.jobs)
            if not waiting or not snapshot.gpus:
                return []
            return self._placements(snapshot, waiting, capacity)

    def _placements(
        self, snapshot: Snapshot, waiting: Sequence[Job], capacity: FreeCapacity
    ) -> list[Placement]:
        kinds = self._job_classes.of_all(waiting)
        jobs = np.frombuffer(bytearray().join([kind.row for kind in kinds]), _JOB)
        allowed = self._allowed(kinds, jobs, capacity)
        gpus = np.frombuffer(bytearray().join(self._gpu_rows.of_all(snapshot.gpus)), _GPU)
        gpus["node"] = capacity.index.node_of
        free = capacity.index.host
        host = None if free is None else np.array(free.T, order="C")
        starts = np.empty((int(jobs["gpus"].sum()) + int(jobs["gpus"].max()), 2), np.int32)
        found = _native().tetris(
            jobs.ctypes.data, len(jobs), gpus.ctypes.data, len(gpus), allowed.ctypes.data,
            None if host is None else host.ctypes.data,
            min(self._parameters.window, len(jobs)), self._parameters.remaining_work,
            starts.ctypes.data,
        )  # fmt: skip
        if found < 0:
            raise MemoryError
        placements: list[Placement] = []
        pairs = iter(starts[:found].tolist())
        for place, gpu in pairs:
            job = waiting[place]
            others = [next(pairs)[1] for _ in range(job.gpus - 1)]
            ids = tuple([snapshot.gpus[index].id for index in (gpu, *others)])
            placements.append(Placement(job.id, ids))
        return placements

    @staticmethod
    def _allowed(
        kinds: Sequence[_JobClass], jobs: NDArray[np.void], capacity: FreeCapacity
    ) -> NDArray[np.bool_]:
        """Set the shapes of jobs; return which GPUs jobs of each shape may use, all of shape 0."""
        limited = np.flatnonzero(jobs["shape"])
        samples = [kinds[place].like for place in limited.tolist()]
        shapes = {(job.products, job.nodes): job for job in samples}
        numbers = {places: number for number, places in enumerate(shapes, start=1)}
        jobs["shape"][limited] = [numbers[job.products, job.nodes] for job in samples]
        whole = np.ones(len(capacity.index.node_of), np.bool_)
        return np.array([whole, *map(capacity.index.allowed, shapes.values())])

    def _gpu_row(self, gpu: GPU) -> bytes:
        free = FreeCapacity([gpu])[gpu.id]
        left = (100.0, 100.0, float(gpu.pcie_bandwidth or _UNLIMITED))
        shared = False
        for holder in free.holders.values():
            used = self._usage(holder)
            left = (left[0] - used[0], left[1] - used[1], left[2] - used[2])
            shared = shared or not holder.lasting
        limits = (free.slots, free.clients, len(free.holders), free.alone)
        is_open = not free.alone and free.slots > 0 and free.clients > 0
        row = (gpu.memory, free.memory, *limits)
        whole = (row, left, gpu.pcie_bandwidth, shared, is_open, 0, 0)
        return np.array([whole], _GPU).tobytes()

    def _usage(self, job: Job | RunningJob) -> _Usage:
        profile = job.profile
        if profile is None:
            return _IDLE
        known = self._usages.get(id(profile))
        if known is None:
            if len(self._usages) == _MOST_USAGES:
                self._usages.clear()
            known = self._usages[id(profile)] = profile, _usage_of(profile, self._parameters)
        return known[1]


def _usage_of(profile: Profile, parameters: TetrisParameters) -> _Usage:
    rows = [
        (100 * sm_share(step), step.bandwidth, step.pcie)
        if parameters.resources == "contended"
        else (step.gpu, step.core, step.pcie)
        for step in profile.steps
    ] or [_IDLE]
    gather = max if parameters.usage == "peak" else fmean
    sm, core, pcie = (gather(column) for column in zip(*rows, strict=True))
    return sm, core, pcie
