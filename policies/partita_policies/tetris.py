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

from collections import Counter
from collections.abc import Sequence
from ctypes import CDLL, c_int, c_void_p
from functools import cache, partial
from operator import attrgetter
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from partita_policies.capacity import FreeCapacity, FreeGPU
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
_Places = tuple[tuple[str, ...], frozenset[str]]
"""The products and nodes of the GPUs that a job may use."""
_REQUEST = attrgetter(
    *("memory", "cpu", "host_memory", "host_storage", "slots", "clients", "alone", "gpus"),
    *("products", "nodes", "priority", "duration"),
)
_CLASS = np.dtype(
    [
        *(("asks", KIND), ("uses", "f8", 3), ("penalty", "f8")),
        *((name, "i4") for name in ("gpus", "priority", "waiting", "shape")),
    ]
)
"""`TetrisClass` of `native/tetris.c`."""
_GPU = np.dtype(
    [
        *(("free", FREE_GPU), ("left", "f8", 3), ("bandwidth", "f8")),
        *((name, "i4") for name in ("shared", "open", "node", "unused")),
    ]
)
"""`TetrisGPU` of `native/tetris.c`."""
_UNLIMITED = 1e300


@cache
def _native() -> CDLL:
    loaded = library()
    loaded.tetris.argtypes = [
        *(c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_int, c_void_p, c_void_p)
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

    `row` has the bytes of a `_CLASS`, without what depends on other jobs. In place of the penalty
    it has the duration, from which that follows; NaN if unknown. `like` is one of the jobs.
    """

    __slots__ = ("__weakref__", "like", "places", "priority", "row")

    def __init__(self, job: Job, usage: _Usage) -> None:
        self.like, self.priority = job, job.priority
        self.places: _Places = job.products, job.nodes
        seconds = np.nan if job.duration is None else job.duration
        row = (asked(job), usage, seconds, job.gpus, job.priority, 0, 0)
        self.row = np.array([row], _CLASS).tobytes()


class Tetris:
    """Give the least loaded GPU the job whose demands align best with its free resources."""

    parameters: ClassVar[type[Parameters]] = TetrisParameters

    def __init__(self, parameters: TetrisParameters) -> None:
        self._weight = parameters.remaining_work
        self._window = parameters.window
        self._usages = Memo(partial(_usage_of, parameters=parameters))
        self._job_classes = Interned[Job, _JobClass](
            key=lambda job: (self._usage(job), _REQUEST(job)),
            compute=lambda job: _JobClass(job, self._usage(job)),
        )
        self._capacity = CapacityCache()

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start the best job of the least loaded GPU, until none has room for any."""
        self._usages.begin()
        self._job_classes.begin()
        with self._capacity.of(snapshot) as capacity:
            waiting = [job for job in snapshot.jobs if not capacity.holds(job.id)]
            if not waiting or not snapshot.gpus:
                return []
            return self._placements(snapshot, waiting, capacity)

    def _placements(
        self, snapshot: Snapshot, waiting: Sequence[Job], capacity: FreeCapacity
    ) -> list[Placement]:
        kinds = self._job_classes.of_all(waiting)
        counts = Counter(kinds)
        ordered = sorted(counts, key=attrgetter("priority"), reverse=True)
        classes, allowed = self._class_rows(ordered, snapshot.gpus, capacity)
        classes["waiting"] = [counts[kind] for kind in ordered]
        gpus = np.array([self._gpu_row(capacity[gpu.id]) for gpu in snapshot.gpus], _GPU)
        gpus["node"] = capacity.index.node_of
        free = capacity.index.host
        host = None if free is None else np.array(free.T, order="C")
        room = np.empty(len(classes))
        asked = classes["waiting"].astype(np.int64) * classes["gpus"]
        starts = np.empty((int(asked.sum()) + int(classes["gpus"].max()), 2), np.int32)
        count = _native().tetris(
            classes.ctypes.data, len(classes), gpus.ctypes.data, len(gpus), allowed.ctypes.data,
            None if host is None else host.ctypes.data, min(self._window, len(classes)),
            room.ctypes.data, starts.ctypes.data,
        )  # fmt: skip
        found = starts[:count].tolist()
        members = {ordered[place]: list[Job]() for place, _ in found}
        for kind, job in zip(reversed(kinds), reversed(waiting), strict=True):
            if kind in members:
                members[kind].append(job)
        placements: list[Placement] = []
        pairs = iter(found)
        for place, gpu in pairs:
            job = members[ordered[place]].pop()
            others = [next(pairs)[1] for _ in range(job.gpus - 1)]
            ids = tuple([snapshot.gpus[index].id for index in (gpu, *others)])
            placements.append(Placement(job.id, ids))
        return placements

    def _class_rows(
        self, kinds: Sequence[_JobClass], gpus: Sequence[GPU], capacity: FreeCapacity
    ) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Return a row for each class, and which GPUs jobs of each shape may use."""
        samples = {kind.places: kind.like for kind in kinds}
        shapes = {places: number for number, places in enumerate(samples)}
        classes = np.frombuffer(b"".join([kind.row for kind in kinds]), _CLASS).copy()
        if len(shapes) > 1:
            classes["shape"] = [shapes[kind.places] for kind in kinds]
        classes["penalty"] = self._penalties(classes, gpus)
        return classes, np.array([capacity.index.allowed(job) for job in samples.values()])

    def _penalties(self, classes: NDArray[np.void], gpus: Sequence[GPU]) -> NDArray[np.float64]:
        """Return epsilon times the remaining work of each class; the mean work if unknown.

        Parameters
        ----------
        classes
            They have their duration in place of the penalty.
        """
        memory = max(gpu.memory for gpu in gpus) or 1
        asks = classes["asks"]
        bandwidth = max(gpu.pcie_bandwidth for gpu in gpus) or np.inf
        # Alignment with the largest GPU when it is idle, in shares of that GPU.
        sizes = np.where(asks["alone"] > 0, 1.0, asks["memory"] / memory)
        sizes += (classes["uses"] / (100.0, 100.0, bandwidth)).sum(axis=1)
        works = classes["penalty"] * sizes * classes["gpus"]
        known = works[works > 0]
        mean_work = float(known.mean()) if len(known) else 1.0
        epsilon = self._weight * float(sizes.mean()) / mean_work
        penalties: NDArray[np.float64] = epsilon * np.where(np.isnan(works), mean_work, works)
        return penalties

    def _gpu_row(self, free: FreeGPU) -> tuple[object, ...]:
        gpu = free.gpu
        left = (100.0, 100.0, float(gpu.pcie_bandwidth or _UNLIMITED))
        shared = False
        for holder in free.holders.values():
            used = self._usage(holder)
            left = (left[0] - used[0], left[1] - used[1], left[2] - used[2])
            shared = shared or not holder.lasting
        limits = (free.slots, free.clients, len(free.holders), free.alone)
        is_open = not free.alone and free.slots > 0 and free.clients > 0
        row = (gpu.memory, free.memory, *limits)
        return (row, left, gpu.pcie_bandwidth, shared, is_open, 0, 0)

    def _usage(self, job: Job | RunningJob) -> _Usage:
        return self._usages.of(job.profile) if job.profile else _IDLE


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
