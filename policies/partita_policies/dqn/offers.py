"""Rounds of offers in one decision: each GPU is offered some of the jobs that fit it.

In each round, every active GPU is offered the first job classes that fit it. No job is offered to
two GPUs at once. A GPU takes any combination of the offered jobs, or it waits and becomes
inactive. Jobs of one class are interchangeable, so several of them start in several rounds. GPUs
with the least remaining work are served first.

Lasting jobs are not among the running jobs of an offer, because the network was trained on jobs
that end. What they hold is missing from the free capacity.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import CapacityError, FreeCapacity, FreeGPU
from partita_policies.dqn.demand import Catalogue, Floats, Integers
from partita_policies.types import GPU, Job, Placement, Snapshot

__all__ = ["Backlog", "Offer", "OfferRound", "OfferedClass", "Priced"]

_GONE = 1 << 62
"""Memory demand of a class without waiting jobs: more than any GPU has."""
_GIB = 1 << 30
_CHUNK = 32
"""Size of the first chunk of classes searched. Each later chunk is three times all before it."""
_PATIENCE = 2048
"""Classes searched for a GPU once one that fits is found. Otherwise all classes are searched."""
_ASKED = attrgetter(
    "priority", "memory", "alone", "gpus", "slots", "clients", "cpu", "host_memory", "host_storage",
    "products", "nodes", "duration", "thread_percent",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class OfferedClass:
    """Waiting jobs with the same request."""

    demand: int
    """Index of their demand in the catalogue."""
    like: Job
    waiting: list[Job] = field(default_factory=list)
    """The next job is last."""


Priced = tuple[Floats, float]


@dataclass(frozen=True, slots=True, eq=False)
class Backlog:
    """The waiting jobs, by class."""

    demands: Integers
    """Index in the catalogue, for each class."""
    memory: Floats
    """GiB allocated by a job, for each class."""
    alone: NDArray[np.bool_]
    """Whether a job needs a GPU without other jobs, for each class."""
    counts: Floats
    gpus: int
    """GPUs among which the work is divided."""
    priced: dict[tuple[float, float], Priced]
    """Price of a second of each demand's work and total value of all work, by GPU memory and link.
    Computed once, because the jobs started in a decision do not change them."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A GPU, its running jobs and the jobs offered to it."""

    free: FreeGPU
    running: tuple[int, ...]
    """Demand of each running job."""
    elapsed: tuple[float, ...]
    """Seconds since each running job started."""
    allocated: tuple[float, ...]
    """GiB allocated by each running job."""
    classes: tuple[int, ...]
    """Indices of the offered classes in the round."""
    jobs: tuple[Job, ...]
    """One job of each offered class."""
    demands: tuple[int, ...]
    """Demand of each offered class."""
    backlog: Backlog


class OfferRound:
    """Offers the waiting jobs of one snapshot to its GPUs and applies the choices.

    Parameters
    ----------
    snapshot
        The snapshot to decide on.
    catalogue
        Catalogue of demands; several rounds may share one.
    """

    def __init__(self, snapshot: Snapshot, catalogue: Catalogue) -> None:
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._active = [
            gpu.id for gpu in sorted(snapshot.gpus, key=partial(_work_left, time=snapshot.time))
        ]
        self._gpus = max(len(snapshot.gpus), 1)
        self._classes = self._classes_of(snapshot, catalogue)
        self._held = {
            gpu.id: self._held_on(gpu.id, catalogue, snapshot.time) for gpu in snapshot.gpus
        }
        likes = [job_class.like for job_class in self._classes]
        self._demands = np.array([job_class.demand for job_class in self._classes], np.int64)
        self._left = np.array([len(job_class.waiting) for job_class in self._classes], np.int64)
        self._memory = np.array([job.memory for job in likes], np.int64)
        self._asked = self._memory.copy()
        """The same, with `_GONE` for classes without waiting jobs."""
        self._alone = np.array([job.alone for job in likes], bool)
        shapes = [(job.slots, job.clients, job.alone) for job in likes]
        places = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
        self._shapes = list(places)
        self._shape = np.array([places[shape] for shape in shapes], np.int64)
        self._cpu = np.array([job.cpu for job in likes], np.int64)
        self._host_memory = np.array([job.host_memory for job in likes], np.int64)
        self._host_storage = np.array([job.host_storage for job in likes], np.int64)
        self._special = [job.gpus > 1 or bool(job.products or job.nodes) for job in likes]
        self._priced: dict[tuple[float, float], Priced] = {}
        self.placements: list[Placement] = []

    def make_offers(self, window: int, rows: int) -> list[Offer]:
        """Offer jobs to the active GPUs; the decision is complete when there are no offers.

        Parameters
        ----------
        window
            Maximum number of classes offered to a GPU; reduced if there are few jobs per GPU.
        rows
            Maximum number of combinations in all offers; exceeded if two classes per GPU need it.
        """
        waiting = int(self._left.sum())
        if not waiting:
            return []
        gpus = self._with_room()
        if not gpus:
            return []
        affordable = max(int(np.log2(max(rows // len(gpus), 1))), 2)
        window = max(min(window, -(-waiting // len(gpus)), affordable), 1)
        left, asked, start = self._left.tolist(), self._asked.copy(), 0
        backlog = self._backlog()
        offers: list[Offer] = []
        for gpu_id in gpus:
            while start < len(left) and not left[start]:
                start += 1
            found = self._fitting(gpu_id, asked, start, window)
            for place in found:
                left[place] -= 1
                if not left[place]:
                    asked[place] = _GONE
            if found:
                offers.append(self._offer(gpu_id, found, backlog))
        return offers

    def apply(self, offers: Sequence[Offer], chosen: Sequence[Sequence[int]]) -> None:
        """Start the jobs at the chosen indices of each offer; a GPU without any is deactivated."""
        out: set[str] = set()
        for offer, places in zip(offers, chosen, strict=True):
            started = [self._start(offer, place) for place in places]
            if not any(started):
                out.add(offer.free.gpu.id)
        self._active = [gpu_id for gpu_id in self._active if gpu_id not in out]

    def _start(self, offer: Offer, place: int) -> bool:
        job_class = self._classes[offer.classes[place]]
        job, gpu = job_class.waiting[-1], offer.free.gpu
        gpu_ids = (gpu.id,) if job.gpus == 1 else self._capacity.first_fit(job, gpu.node) or ()
        try:
            self._capacity.take(job, gpu_ids)
        except CapacityError:
            # Another offer of this round took resources (GPUs or CPU of the node) that it needs.
            return False
        job_class.waiting.pop()
        self._left[offer.classes[place]] -= 1
        if not job_class.waiting:
            self._asked[offer.classes[place]] = _GONE
        for gpu_id in gpu_ids:
            memory = self._capacity[gpu_id].gpu.memory if job.alone else job.memory
            self._held[gpu_id].append((job_class.demand, 0.0, memory / _GIB))
        self.placements.append(Placement(job.id, gpu_ids))
        return True

    def _held_on(
        self, gpu_id: str, catalogue: Catalogue, time: float
    ) -> list[tuple[int, float, float]]:
        """Return demand, seconds since the start and allocated GiB of each job that ends."""
        free = self._capacity[gpu_id]
        return [
            (
                catalogue.index(holder),
                0.0 if isinstance(holder, Job) else holder.elapsed(time),
                (free.gpu.memory if holder.alone else holder.memory) / _GIB,
            )
            for holder in free.holders.values()
            if not holder.lasting
        ]

    def _classes_of(self, snapshot: Snapshot, catalogue: Catalogue) -> list[OfferedClass]:
        groups: dict[tuple[Hashable, ...], OfferedClass] = {}
        holds, index = self._capacity.holds, catalogue.index
        for job in snapshot.jobs:
            if holds(job.id):
                continue
            key = (id(job.profile), _ASKED(job))
            job_class = groups.get(key)
            if job_class is None:
                job_class = groups[key] = OfferedClass(index(job), job)
            job_class.waiting.append(job)
        for job_class in groups.values():
            job_class.waiting.reverse()
        return sorted(groups.values(), key=lambda job_class: -job_class.like.priority)

    def _with_room(self) -> list[str]:
        """Return the active GPUs with free capacity for a waiting job, and deactivate the rest."""
        least = int(self._asked[~self._alone].min(initial=_GONE))
        some_alone = bool((self._asked[self._alone] < _GONE).any())
        kept = []
        for gpu_id in self._active:
            free = self._capacity[gpu_id]
            open_ = free.slots > 0 and free.clients > 0 and not free.alone
            if open_ and (least <= free.memory or (some_alone and not free.holders)):
                kept.append(gpu_id)
        self._active = kept
        return kept

    def _fitting(self, gpu_id: str, asked: Integers, start: int, window: int) -> list[int]:
        """Return the first classes that fit a GPU, all of the same priority."""
        free, hosts = self._capacity[gpu_id], self._capacity.hosts
        host = hosts.left(free.gpu.node) if hosts else None
        shapes = [
            slots <= free.slots and clients <= free.clients and not (alone and free.holders)
            for slots, clients, alone in self._shapes
        ]
        allowed = None if all(shapes) else np.array(shapes)
        found: list[int] = []
        low, end = start, start + _CHUNK
        while low < len(asked) and not (found and low - start >= _PATIENCE):
            part = slice(low, end)
            fits = asked[part] <= free.memory
            if allowed is not None:
                fits &= allowed[self._shape[part]]
            if host:  # a job that requests none of a resource always fits
                fits &= self._cpu[part] <= max(host[0], 0)
                fits &= self._host_memory[part] <= max(host[1], 0)
                fits &= self._host_storage[part] <= max(host[2], 0)
            for place in (fits.nonzero()[0] + low).tolist():
                job = self._classes[place].like
                if found and job.priority != self._classes[found[0]].like.priority:
                    return found
                if self._special[place] and self._capacity.reach(job, gpu_id) < job.memory:
                    continue
                found.append(place)
                if len(found) == window:
                    return found
            low, end = end, end + 3 * (end - start)
        return found

    def _offer(self, gpu_id: str, found: list[int], backlog: Backlog) -> Offer:
        classes = [self._classes[place] for place in found]
        held = self._held[gpu_id]
        return Offer(
            self._capacity[gpu_id],
            tuple([demand for demand, _, _ in held]),
            tuple([elapsed for _, elapsed, _ in held]),
            tuple([allocated for _, _, allocated in held]),
            tuple(found),
            tuple([job_class.waiting[-1] for job_class in classes]),
            tuple([job_class.demand for job_class in classes]),
            backlog,
        )

    def _backlog(self) -> Backlog:
        alive = self._left > 0
        memory = (self._memory[alive] / _GIB).astype(np.float32)
        counts = self._left[alive].astype(np.float32)
        demands, alone = self._demands[alive], self._alone[alive]
        return Backlog(demands, memory, alone, counts, self._gpus, self._priced)


def _work_left(gpu: GPU, time: float) -> float:
    """Return the seconds of work left on a GPU, without jobs of unknown duration.

    One second is added for a busy GPU, so that idle GPUs are first.
    """
    ending = [one for one in gpu.running if not one.lasting]
    known = [(one.duration, one.elapsed(time)) for one in ending if one.duration is not None]
    left = sum(max(duration - elapsed, 0.0) for duration, elapsed in known)
    return left + bool(ending)
