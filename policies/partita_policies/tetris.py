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
- Epsilon is computed from the mean alignment with an idle GPU.
- Only the first `window` job classes that fit are compared, and of these only the highest
  priority. There is no fairness parameter, because the queue's order is already fair.
- A job on several GPUs is scored on one of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from math import inf
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from partita_policies.capacity import CapacityError, FreeCapacity
from partita_policies.equivalence_classes import EquivalenceClass, EquivalenceClasses
from partita_policies.interference import sm_share
from partita_policies.profile_cache import ProfileCache
from partita_policies.types import GPU, Job, Parameters, Placement, Profile, RunningJob, Snapshot

__all__ = ["Tetris", "TetrisParameters"]

_WHOLE = -1
_PATIENCE = 4
"""Number of windows of classes that are searched for classes that also fit by their profile."""
_IDLE = (0.0, 0.0, 0.0)

_Usage = tuple[float, float, float]
"""Demand according to a profile, or what is left of a GPU: percent of the SMs' throughput or of
GPU utilisation, percent of the memory's bandwidth or of SM occupancy, PCIe bytes per second."""
_Trait = tuple[_Usage, float | None]
"""Demand and duration of a job."""
_Need = tuple[int, int, int, float, float, float, float, int]
"""Scoring data of a class: memory (`_WHOLE` when alone), slots, clients, demand, epsilon times the
remaining work, priority. A plain tuple, because thousands are unpacked."""


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


class Tetris:
    """Pack each GPU with the jobs whose demands align best with its free resources."""

    parameters: ClassVar[type[Parameters]] = TetrisParameters

    def __init__(self, parameters: TetrisParameters) -> None:
        self._weight = parameters.remaining_work
        self._window = parameters.window
        self._usages = ProfileCache(partial(_usage_of, parameters=parameters))

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start the best job of the least loaded GPU, until none has room for any."""
        self._usages.begin()
        decision = _Packing(snapshot, self._weight, self._usages)
        placements: list[Placement] = []
        queue = [
            (decision.load(gpu), order, gpu, decision.fill(gpu, self._window))
            for order, gpu in enumerate(snapshot.gpus)
        ]
        heapify(queue)
        while queue and decision.classes:
            _, order, gpu, starts = queue[0]
            placement = next(starts, None)
            if placement is None:
                heappop(queue)
            else:
                placements.append(placement)
                heapreplace(queue, (decision.load(gpu), order, gpu, starts))
        return placements


class _Packing:
    """Free capacity and waiting jobs during one decision."""

    def __init__(self, snapshot: Snapshot, weight: float, usages: ProfileCache[_Usage]) -> None:
        self._usages = usages
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._left = {gpu.id: self._left_of(gpu) for gpu in snapshot.gpus}
        waiting = (job for job in snapshot.jobs if not self._capacity.holds(job.id))
        jobs = sorted(waiting, key=lambda job: -job.priority)
        self.classes = EquivalenceClasses(jobs, self._trait)
        self._needs = self._needs_of(snapshot.gpus, weight)
        self._least = [min((need[of] for need in self._needs), default=0.0) for of in (3, 4, 5)]
        """Smallest demand of any class."""

    def load(self, gpu: GPU) -> tuple[int, int]:
        """Return what is least for the GPU with the fewest jobs, then the most free memory."""
        free = self._capacity[gpu.id]
        return len(free.holders), -free.memory

    def fill(self, gpu: GPU, window: int) -> Iterator[Placement]:
        """Place jobs on a GPU, the best score first, until no job fits."""
        free = self._capacity[gpu.id]
        stream = self.classes.fitting(self._capacity, gpu.id)
        known: list[EquivalenceClass[_Trait]] = []
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
        self, classes: Iterable[EquivalenceClass[_Trait]], gpu: GPU, window: int
    ) -> tuple[list[EquivalenceClass[_Trait]], EquivalenceClass[_Trait] | None]:
        """Return the first classes that fit a GPU, and the best one of the highest priority.

        Classes are sorted by priority.
        """
        free, left, hosts = self._capacity[gpu.id], self._left[gpu.id], self._capacity.hosts
        # Profiled resources are constraints only on a GPU with jobs that end.
        shared = any(not holder.lasting for holder in free.holders.values())
        sm_left, core_left, pcie_left = left if shared else (inf, inf, inf)
        least_sm, least_core, least_pcie = self._least
        if least_sm > sm_left or least_core > core_left or least_pcie > pcie_left:
            return [], None
        capacity, whole = free.memory, gpu.memory
        slots_left, clients_left = free.slots, free.clients
        by_memory = capacity / whole**2 if whole else 0.0
        sm, core, pcie = left
        by_sm, by_core = max(sm, 0.0) / 1e4, max(core, 0.0) / 1e4
        by_pcie = max(pcie, 0.0) / gpu.pcie_bandwidth**2 if gpu.pcie_bandwidth else 0.0
        found: list[EquivalenceClass[_Trait]] = []
        best: EquivalenceClass[_Trait] | None = None
        highest, urgent = -inf, 0
        needs = self._needs
        for job_class in classes:
            if not job_class.waiting:
                continue  # another GPU got its last job
            memory, slots, clients, sm, core, pcie, penalty, priority = needs[job_class.order]
            if memory > capacity or slots > slots_left or clients > clients_left:
                continue
            if sm > sm_left or core > core_left or pcie > pcie_left:
                continue
            if hosts is not None and not hosts.has(gpu.node, job_class.waiting[-1]):
                continue
            if not found:
                urgent = priority
            found.append(job_class)
            if priority == urgent:
                score = (whole if memory == _WHOLE else memory) * by_memory - penalty
                score += sm * by_sm + core * by_core + pcie * by_pcie
                if score > highest:
                    highest, best = score, job_class
            if len(found) == window:
                break
        return found, best

    def _start(self, job_class: EquivalenceClass[_Trait], gpu: GPU) -> Placement | None:
        job = job_class.waiting[-1]
        gpu_ids = (gpu.id,) if job.gpus == 1 else self._capacity.first_fit(job, gpu.node) or ()
        try:
            self._capacity.take(job, gpu_ids)
        except CapacityError:
            return None
        self.classes.start(job_class)
        for gpu_id in gpu_ids:
            self._left[gpu_id] = _less(self._left[gpu_id], job_class.trait[0])
        return Placement(job.id, gpu_ids)

    def _needs_of(self, gpus: Sequence[GPU], weight: float) -> list[_Need]:
        whole = max((gpu.memory for gpu in gpus), default=0) or 1
        bandwidth = max((gpu.pcie_bandwidth for gpu in gpus), default=0) or inf
        works: list[float | None] = []
        total = 0.0
        for job_class in self.classes:
            job, ((sm, core, pcie), duration) = job_class.waiting[-1], job_class.trait
            # Alignment with the largest GPU when it is idle, in shares of that GPU.
            size = 1.0 if job.alone else job.memory / whole
            size += (sm + core) / 100 + pcie / bandwidth
            total += size
            works.append(None if duration is None else duration * size * job.gpus)
        known = [work for work in works if work]
        mean_work = sum(known) / len(known) if known else 1.0
        epsilon = weight * total / max(len(works), 1) / mean_work
        needs: list[_Need] = []
        for job_class, work in zip(self.classes, works, strict=True):
            job, ((sm, core, pcie), _) = job_class.waiting[-1], job_class.trait
            penalty = epsilon * (mean_work if work is None else work)
            memory = _WHOLE if job.alone else job.memory
            needs.append((memory, job.slots, job.clients, sm, core, pcie, penalty, job.priority))
        return needs

    def _left_of(self, gpu: GPU) -> _Usage:
        left = (100.0, 100.0, gpu.pcie_bandwidth or inf)
        for running_job in gpu.running:
            left = _less(left, self._trait(running_job)[0])
        return left

    def _trait(self, job: Job | RunningJob) -> _Trait:
        return (self._usages.of(job.profile) if job.profile else _IDLE, job.duration)


def _less(left: _Usage, taken: _Usage) -> _Usage:
    return (left[0] - taken[0], left[1] - taken[1], left[2] - taken[2])


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
