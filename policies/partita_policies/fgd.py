"""Fragmentation gradient descent: place each job where it fragments free GPU memory least.

Source: Q. Weng, L. Yang, Y. Yu, W. Wang, X. Tang, G. Yang, L. Zhang, "Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023
(https://www.usenix.org/conference/atc23/presentation/weng). Free memory is a fragment for a task
that cannot use it: on a GPU with less than the task requests, or anywhere on a node without
enough GPUs or CPU for the task. The fragmentation of a node is the expected fragment size over
tasks of the target workload. A job is placed on the GPU where its node's fragmentation grows least.

Departures from the paper and its simulator (https://github.com/hkust-adsl/
kubernetes-scheduler-simulator, `pkg/utils/frag.go`):

- The target workload is the waiting and running jobs, or is set by the parameters.
- A share of a GPU is a share of its memory. A task that must be alone, or that requests several
  GPUs, needs idle GPUs.
- A job of no GPU memory gets a GPU of the node where its CPU demand makes least memory unusable;
  among equal ones, where little memory is free and much CPU for each part of it.
- The simulator rounds the growth to one of 100 scores and chooses at random among equal scores.
  Here the growth is exact. Among equal GPUs, the one with the least free memory is chosen, then
  the first.

Implementation: amounts are in thousandths of the largest GPU. The growth on a GPU depends only on
its free memory (for an idle GPU, on the number of idle GPUs of its node) and on the node's CPU. It
is therefore looked up in tables for all GPUs at once.
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from partita_policies.capacity import FreeCapacity
from partita_policies.incremental import CapacityCache
from partita_policies.types import Job, Parameters, Placement, Snapshot

__all__ = ["FGD", "FGDParameters", "TypicalTask"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Flags = NDArray[np.bool_]

_Shape = tuple[int, int, bool, int]
"""Request of a task: bytes of each GPU, number of GPUs, whether alone, CPU."""

_PARTS = 1000
"""Number of parts of the largest GPU; the unit of memory is one part, as in the paper's trace."""
_PLENTY = 2**62
_SPARE_CPU = 1e-8
"""Weight of a thousandth of a CPU for each free part of a node; it only breaks ties."""
_TIGHTER = 1e-6
"""Weight of a part of free memory relative to a part of fragmentation: it only breaks ties."""


class TypicalTask(BaseModel):
    """Tasks of one shape in the target workload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float = Field(gt=0, description="How often such tasks come, relative to the others.")
    memory: int = Field(ge=0, description="Bytes that one takes of each of its GPUs.")
    gpus: int = Field(default=1, ge=1, description="How many GPUs it takes.")
    alone: bool = Field(default=False, description="Whether its GPUs must be idle.")
    cpu: int = Field(default=0, ge=0, description="Thousandths of a CPU that it takes in all.")


class FGDParameters(Parameters):
    """Parameters of `FGD`."""

    typical: tuple[TypicalTask, ...] = Field(
        default=(),
        description="The target workload; when empty, the jobs that wait and run now.",
    )


class FGD:
    """Place each job, in queue order, where it increases the fragmentation of GPUs least."""

    parameters: ClassVar[type[Parameters]] = FGDParameters

    def __init__(self, parameters: FGDParameters) -> None:
        self._capacity = CapacityCache()
        self._typical: dict[_Shape, float] = {}
        for task in parameters.typical:
            shape = (task.memory, task.gpus, task.alone, task.cpu)
            self._typical[shape] = self._typical.get(shape, 0.0) + task.share

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place the jobs by descending priority."""
        if not snapshot.gpus:
            return []
        with self._capacity.of(snapshot) as capacity:
            return self._placements(snapshot, capacity)

    def _placements(self, snapshot: Snapshot, capacity: FreeCapacity) -> list[Placement]:
        largest = max(gpu.memory for gpu in snapshot.gpus)
        shapes = self._typical or _seen(snapshot)
        part = max(1, -(-largest // _PARTS))
        target = _Target(shapes, part, hosts=capacity.hosts is not None)
        cluster = _Cluster(capacity, snapshot, target)
        placements: list[Placement] = []
        for job in sorted(snapshot.jobs, key=lambda job: -job.priority):
            if capacity.is_known_not_to_fit(job) or capacity.holds(job.id):
                continue
            gpu_ids = cluster.best(job) if job.gpus == 1 else cluster.best_together(job)
            if gpu_ids is None:
                capacity.first_fit(job)  # fails too, and stores the failure
                continue
            capacity.allocate(job, gpu_ids)
            cluster.update(gpu_ids)
            placements.append(Placement(job.id, gpu_ids))
        return placements


def _seen(snapshot: Snapshot) -> dict[_Shape, float]:
    """Count the shapes of the waiting and running jobs that take GPU memory."""
    seen = Counter([(job.memory, job.gpus, job.alone, job.cpu) for job in snapshot.jobs])
    running = [running_job for gpu in snapshot.gpus for running_job in gpu.running]
    gpus = Counter([running_job.job for running_job in running])
    for b in {running_job.job: running_job for running_job in running}.values():
        seen[b.memory, gpus[b.job], b.alone, b.cpu] += 1
    return {shape: float(count) for shape, count in seen.items() if shape[0] or shape[2]}


class _Target:
    """The target workload, as tables of the memory that its tasks cannot use.

    The level of a node is the number of distinct CPU requests of tasks that its free CPU covers.

    Parameters
    ----------
    shapes
        Relative frequency of each shape; the sum is arbitrary.
    part
        Bytes of one part of memory.
    hosts
        Whether the nodes' CPU is known; if not, CPU is not considered.
    """

    def __init__(self, shapes: dict[_Shape, float], part: int, *, hosts: bool) -> None:
        self.part = part
        table = np.array([*shapes], np.int64).reshape(-1, 4).T
        memory, gpus, alone, cpu = table
        share = np.fromiter(shapes.values(), np.float64, len(shapes))
        share /= share.sum() or 1.0
        idlers = (alone > 0) | (gpus > 1)
        size = np.minimum(-(-memory // part), _PARTS + 1)
        self._asked = np.unique(cpu) if hosts else np.zeros(0, np.int64)
        able, levels = self.level(cpu), len(self._asked) + 1
        sharing = np.zeros((levels, _PARTS + 2))
        np.add.at(sharing, (able[~idlers], size[~idlers]), share[~idlers])
        sharing = sharing.cumsum(axis=0)
        several = np.zeros((levels, gpus.max(initial=1) + 1))
        np.add.at(several, (able[idlers], gpus[idlers]), share[idlers])
        # Free parts times the share of tasks that share a GPU and request more memory. Twice as
        # wide as the number of parts, so that negative indices, caused by rounding, give 0.
        self.scraps: _Floats = np.zeros((levels, 2 * _PARTS + 3))
        beyond = sharing[:, :0:-1].cumsum(axis=1)[:, ::-1]
        self.scraps[:, : _PARTS + 1] = beyond * np.arange(_PARTS + 1)
        # The share of tasks that need idle GPUs, at most the number given by the index.
        self.idlers: _Floats = several.cumsum(axis=0).cumsum(axis=1)
        self.wants_idle = bool(idlers.any())
        # For the remaining share of tasks, all of a node's free parts are fragments.
        self.rest: _Floats = 1.0 - sharing.sum(axis=1)

    def parts(self, memory: int) -> int:
        """Return the parts needed for some bytes, at most `_PARTS` + 1."""
        return min(-(-memory // self.part), _PARTS + 1)

    def level(self, cpu: _Ints) -> NDArray[np.intp]:
        """Return the levels of nodes with this free CPU."""
        return np.searchsorted(self._asked, cpu, side="right")

    def fragments(self, level: NDArray[np.intp], free: _Ints, idle: _Flags) -> _Floats:
        """Return the mean number of parts that the tasks cannot use.

        Parameters
        ----------
        level
            Level of each node.
        free, idle
            Free parts, and whether a GPU has no jobs, for each node's GPUs along the last axis.
        """
        scraps = self.scraps[level[..., None], free].sum(axis=-1)
        fragments: _Floats = self.rest[level] * free.sum(axis=-1) + scraps
        if self.wants_idle:
            count = np.minimum(idle.sum(axis=-1), self.idlers.shape[1] - 1)
            fragments -= self.idlers[level, count] * (free * idle).sum(axis=-1)
        return fragments


class _Cluster:
    """The GPUs of one decision in arrays, and the growth of fragmentation by a job on each GPU.

    The last element of each array of GPUs is padding for nodes with fewer GPUs.
    """

    def __init__(self, capacity: FreeCapacity, snapshot: Snapshot, target: _Target) -> None:
        self._capacity = capacity
        self._target = target
        self._index = capacity.index
        self._ids = [gpu.id for gpu in snapshot.gpus]
        self._position = {gpu_id: position for position, gpu_id in enumerate(self._ids)}
        lack, rows = len(self._ids), len(self._index.nodes)
        self._node_of = np.append(self._index.node_of, 0)
        counts = np.bincount(self._index.node_of)
        self._members = np.full((rows, counts.max()), lack)
        self._members[np.arange(counts.max()) < counts[:, None]] = np.argsort(
            self._index.node_of, kind="stable"
        )
        self._all = np.arange(lack + 1)
        host = self._index.host
        self._cpu = np.full(rows, _PLENTY) if host is None else host[0]
        self._free = np.zeros(lack + 1, np.int64)
        self._idle = np.zeros(lack + 1, np.bool_)
        """Whether all memory of a GPU is free."""
        for position, gpu_id in enumerate(self._ids):
            self._read(position, gpu_id)
        self._fragments = np.zeros(rows)
        self._growth = np.zeros((len(target.rest), lack + 1))
        self._update_growth(np.arange(rows))

    def best(self, job: Job) -> tuple[str, ...] | None:
        """Return the GPU where fragmentation grows least among those that a job fits."""
        fits = self._index.fits(job)
        if not fits.any():
            return None
        growth = self._growth_of(job)[:-1]
        if not job.memory and self._index.host is not None:
            parts = self._free[self._members].sum(axis=1)
            growth -= _SPARE_CPU * (self._cpu / (parts + 1)).take(self._index.node_of)
        return (self._ids[int(np.where(fits, growth, np.inf).argmin())],)

    def best_together(self, job: Job) -> tuple[str, ...] | None:
        """Return several GPUs of the node where fragmentation grows least."""
        fits = np.append(self._index.fits(job), values=False)[self._members]
        nodes = np.flatnonzero(fits.sum(axis=1) >= job.gpus)
        if not len(nodes):
            return None
        members, fits = self._members[nodes], fits[nodes]
        free, idle = self._free[members], self._idle[members]
        order = np.argsort(np.where(fits, free, _PARTS + 1), axis=1, kind="stable")
        chosen = order[:, : job.gpus]
        np.put_along_axis(idle, chosen, values=False, axis=1)
        left = np.take_along_axis(free, chosen, axis=1) - self._target.parts(job.memory)
        np.put_along_axis(free, chosen, 0 if job.alone else np.maximum(left, 0), axis=1)
        level = self._target.level(self._cpu[nodes] - job.cpu)
        growth = self._target.fragments(level, free, idle) - self._fragments[nodes]
        best = int(growth.argmin())
        return tuple(self._ids[members[best, place]] for place in chosen[best])

    def update(self, gpu_ids: Sequence[str]) -> None:
        """Update the arrays after these GPUs, all of one node, were allocated."""
        for gpu_id in gpu_ids:
            position = self._position[gpu_id]
            self._read(position, gpu_id)
        if len(self._target.rest) == 1 and not self._target.wants_idle:
            free = self._free[position]  # independent of the other GPUs
            self._growth[0, position] = _TIGHTER * free - self._target.scraps[0, free]
        else:
            self._update_growth(self._node_of[[position]])

    def _growth_of(self, job: Job) -> _Floats:
        """Return the growth of fragmentation on each GPU, as if the job fitted all of them."""
        scraps, rest = self._target.scraps, self._target.rest
        size = self._free if job.alone else self._target.parts(job.memory)
        left = self._free - size
        if len(rest) == 1:
            growth: _Floats = scraps[0].take(left)
            growth += self._growth[0]
            if job.alone:
                growth -= rest[0] * size
            return growth
        # Flat indices into whole tables take a third of the time of two indices. A negative index
        # in a row leads to the end of another row, which is also 0.
        level = self._target.level(self._cpu - job.cpu).take(self._node_of)
        growth = self._growth.take(level * len(self._all) + self._all)
        growth += scraps.take(level * scraps.shape[1] + left)
        growth -= rest.take(level) * size
        return growth

    def _read(self, position: int, gpu_id: str) -> None:
        """Read the free memory of a GPU."""
        memory = max(int(self._index.memory[0, position]), 0)
        self._free[position] = memory // self._target.part
        self._idle[position] = memory == self._capacity[gpu_id].gpu.memory

    def _update_growth(self, nodes: NDArray[np.intp]) -> None:
        """Compute the part of the growth on some nodes' GPUs that does not depend on the job.

        For each level that the node can reach, this is the memory made unusable by the loss of
        CPU, the GPU's previous fragments, and, for an idle GPU, the loss of an idle GPU for tasks
        that need idle GPUs.
        """
        target, members = self._target, self._members[nodes]
        free, idle = self._free[members], self._idle[members]
        levels = np.arange(len(target.rest))
        then = target.fragments(levels[:, None], free, idle)
        now = then[target.level(self._cpu[nodes]), np.arange(len(nodes))]
        self._fragments[nodes] = now
        growth = (then - now)[..., None] - target.scraps[levels[:, None, None], free]
        growth += _TIGHTER * free
        if target.wants_idle:
            most = target.idlers.shape[1] - 1
            count, all_idle = idle.sum(axis=1), (free * idle).sum(axis=1)
            before = target.idlers[levels[:, None], np.minimum(count, most)] * all_idle
            after = target.idlers[levels[:, None], np.clip(count - 1, 0, most)]
            growth += idle * (before[..., None] - after[..., None] * (all_idle[:, None] - free))
        self._growth[:, members] = growth
