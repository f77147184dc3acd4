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

The resources are the requested GPU memory and MPS threads, and, if the application has a profile,
its GPU utilisation, SM occupancy and PCIe throughput. Departures from the paper:

- Means, not peaks, of the profile are the default. Nearly every training job reaches 100 % GPU
  utilisation in some step, so that with peaks no two jobs would ever share a GPU.
- Threads are no constraint (MPS lets their sum exceed 100 %, and 100 is the default). Profiled
  resources are constraints only beside other jobs that end, so no job is too large for a GPU that
  is idle or has only services.
- A node's CPU and memory, if known, are constraints, but not part of the score.
- Epsilon is computed from the mean alignment with an idle GPU.
- Only the first `window` job classes that fit are compared, and of these only the highest
  priority. There is no fairness parameter, because the queue's order is already fair.
- A job on several GPUs is scored on one of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import ClassVar, Literal

from pydantic import Field

from partita_policies.capacity import CapacityError, FreeCapacity
from partita_policies.equivalence_classes import EquivalenceClass, EquivalenceClasses
from partita_policies.profile_cache import ProfileCache
from partita_policies.types import GPU, Job, Parameters, Placement, Profile, RunningJob, Snapshot

__all__ = ["Tetris", "TetrisParameters"]

_WHOLE = -1
_PATIENCE = 4
"""Number of windows of classes that are searched for classes that also fit by their profile."""
_IDLE = (0.0, 0.0, 0.0)

_Use = tuple[int, float, float, float, float | None]
"""Demand of a job besides memory: threads, GPU, core, PCIe; and its duration."""
_Need = tuple[int, int, int, int, float, float, float, float, int]
"""Scoring data of a class: memory (`_WHOLE` when alone), slots, clients, threads, GPU, core, PCIe,
epsilon times the remaining work, priority. A plain tuple, because thousands are unpacked."""

_Usage = tuple[float, float, float]
"""Demand according to a profile: GPU, core, PCIe."""


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
    window: int = Field(
        default=12,
        ge=1,
        description="How many fitting job classes, from the front of the queue, are compared.",
    )


@dataclass(slots=True)
class _Left:
    """Free resources of a GPU besides memory; below zero if the demands exceed the GPU."""

    threads: float
    gpu: float
    core: float
    pcie: float

    def take(self, use: _Use) -> None:
        threads, gpu, core, pcie, _ = use
        self.threads -= threads
        self.gpu -= gpu
        self.core -= core
        self.pcie -= pcie


class Tetris:
    """Pack each GPU with the jobs whose demands align best with its free resources."""

    parameters: ClassVar[type[Parameters]] = TetrisParameters

    def __init__(self, parameters: TetrisParameters) -> None:
        self._weight = parameters.remaining_work
        self._window = parameters.window
        self._usages = ProfileCache(_peak_of if parameters.usage == "peak" else _mean_of)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Fill the GPUs in their order, each with the jobs that align best with it."""
        self._usages.begin()
        decision = _Packing(snapshot, self._weight, self._usages)
        placements: list[Placement] = []
        for gpu in snapshot.gpus:
            placements.extend(decision.fill(gpu, self._window))
            if not decision.classes:
                break
        return placements


class _Packing:
    """Free capacity and waiting jobs during one decision."""

    def __init__(self, snapshot: Snapshot, weight: float, usages: ProfileCache[_Usage]) -> None:
        self._usages = usages
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._left = {gpu.id: self._left_of(gpu) for gpu in snapshot.gpus}
        waiting = (job for job in snapshot.jobs if not self._capacity.holds(job.id))
        jobs = sorted(waiting, key=lambda job: -job.priority)
        self.classes = EquivalenceClasses(jobs, self._use)
        self._needs = self._needs_of(snapshot.gpus, weight)
        self._least = [min((need[of] for need in self._needs), default=0.0) for of in (4, 5, 6)]
        """Smallest demand of any class for GPU, core and PCIe."""

    def fill(self, gpu: GPU, window: int) -> Iterator[Placement]:
        """Place jobs on a GPU, the best score first, until no job fits."""
        free = self._capacity[gpu.id]
        stream = self.classes.fitting(self._capacity, gpu.id)
        known: list[EquivalenceClass[_Use]] = []
        patience = _PATIENCE * window
        while free.slots and free.clients and not free.alone:
            known, best = self._weigh(chain(known, islice(stream, patience)), gpu, window)
            if best is None:
                return
            placement = self._start(best, gpu)
            # After a refusal no other classes are added until one of the known ones has started.
            patience = 0 if placement is None else _PATIENCE * window
            if placement is not None:
                yield placement
            if placement is None or not best.waiting:
                known.remove(best)

    def _weigh(
        self, classes: Iterable[EquivalenceClass[_Use]], gpu: GPU, window: int
    ) -> tuple[list[EquivalenceClass[_Use]], EquivalenceClass[_Use] | None]:
        """Return the first classes that fit a GPU, and the best one of the highest priority.

        Classes are sorted by priority.
        """
        free, left, hosts = self._capacity[gpu.id], self._left[gpu.id], self._capacity.hosts
        # Profiled resources are constraints only on a GPU with jobs that end.
        shared = any(not holder.lasting for holder in free.holders.values())
        busy_left, core_left, pcie_left = (
            (left.gpu, left.core, left.pcie) if shared else (inf, inf, inf)
        )
        least_busy, least_core, least_pcie = self._least
        if least_busy > busy_left or least_core > core_left or least_pcie > pcie_left:
            return [], None
        capacity, whole = free.memory, gpu.memory
        slots_left, clients_left = free.slots, free.clients
        by_memory = capacity / whole**2 if whole else 0.0
        by_threads, by_core = max(left.threads, 0.0) / 1e4, max(left.core, 0.0) / 1e4
        by_gpu = max(left.gpu, 0.0) / 1e4
        by_pcie = max(left.pcie, 0.0) / gpu.pcie_bandwidth**2 if gpu.pcie_bandwidth else 0.0
        found: list[EquivalenceClass[_Use]] = []
        best: EquivalenceClass[_Use] | None = None
        highest, urgent = -inf, 0
        needs = self._needs
        for job_class in classes:
            memory, slots, clients, threads, busy, core, pcie, penalty, priority = needs[
                job_class.order
            ]
            if memory > capacity or slots > slots_left or clients > clients_left:
                continue
            if busy > busy_left or core > core_left or pcie > pcie_left:
                continue
            if hosts is not None and not hosts.has(gpu.node, job_class.waiting[-1]):
                continue
            if not found:
                urgent = priority
            found.append(job_class)
            if priority == urgent:
                score = (whole if memory == _WHOLE else memory) * by_memory - penalty
                score += threads * by_threads + busy * by_gpu + core * by_core + pcie * by_pcie
                if score > highest:
                    highest, best = score, job_class
            if len(found) == window:
                break
        return found, best

    def _start(self, job_class: EquivalenceClass[_Use], gpu: GPU) -> Placement | None:
        job = job_class.waiting[-1]
        gpu_ids = (gpu.id,) if job.gpus == 1 else self._capacity.first_fit(job, gpu.node) or ()
        try:
            self._capacity.take(job, gpu_ids)
        except CapacityError:
            return None
        self.classes.start(job_class)
        for gpu_id in gpu_ids:
            self._left[gpu_id].take(job_class.trait)
        return Placement(job.id, gpu_ids)

    def _needs_of(self, gpus: Sequence[GPU], weight: float) -> list[_Need]:
        whole = max((gpu.memory for gpu in gpus), default=0) or 1
        bandwidth = max((gpu.pcie_bandwidth for gpu in gpus), default=0) or inf
        works: list[float | None] = []
        total = 0.0
        for job_class in self.classes:
            job, (threads, busy, core, pcie, duration) = job_class.waiting[-1], job_class.trait
            # Alignment with the largest GPU when it is idle, in shares of that GPU.
            size = 1.0 if job.alone else job.memory / whole
            size += (threads + busy + core) / 100 + pcie / bandwidth
            total += size
            works.append(None if duration is None else duration * size * job.gpus)
        known = [work for work in works if work]
        mean_work = sum(known) / len(known) if known else 1.0
        epsilon = weight * total / max(len(works), 1) / mean_work
        needs: list[_Need] = []
        for job_class, work in zip(self.classes, works, strict=True):
            job, (threads, busy, core, pcie, _) = job_class.waiting[-1], job_class.trait
            penalty = epsilon * (mean_work if work is None else work)
            memory = _WHOLE if job.alone else job.memory
            asked = (memory, job.slots, job.clients, threads)
            needs.append((*asked, busy, core, pcie, penalty, job.priority))
        return needs

    def _left_of(self, gpu: GPU) -> _Left:
        left = _Left(100.0, 100.0, 100.0, gpu.pcie_bandwidth or inf)
        for running_job in gpu.running:
            left.take(self._use(running_job))
        return left

    def _use(self, job: Job | RunningJob) -> _Use:
        threads = 100 if job.alone else job.thread_percent
        measured = self._usages.of(job.profile) if job.profile else _IDLE
        return (threads, *measured, job.duration)


def _mean_of(profile: Profile) -> _Usage:
    gpu, core, pcie = (sum(amounts) / len(amounts) for amounts in _columns(profile))
    return gpu, core, pcie


def _peak_of(profile: Profile) -> _Usage:
    gpu, core, pcie = (max(amounts) for amounts in _columns(profile))
    return gpu, core, pcie


def _columns(profile: Profile) -> Iterable[tuple[float, ...]]:
    rows = [(step.gpu, step.core, step.pcie) for step in profile.steps] or [_IDLE]
    return zip(*rows, strict=True)
