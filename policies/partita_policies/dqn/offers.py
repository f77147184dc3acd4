"""What is dealt to the GPUs in one decision: to each, some of the jobs that it has room for.

A decision goes in rounds. In each, every GPU that is still active is offered the first classes of
jobs that fit it, no job being offered to two at a time; it takes any combination of them, or
waits and is out. Jobs of one class are told apart by nothing, so several of them join in several
rounds. Those with the least work left choose first.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import CapacityError, FreeCapacity, FreeGPU
from partita_policies.dqn.demand import Catalogue, Floats, Integers
from partita_policies.types import GPU, Job, Placement, Snapshot

__all__ = ["Backlog", "Offer", "OfferRound", "OfferedClass", "Priced"]

_GONE = 1 << 62
"""What a job of a class of which none is left asks for: more than any GPU has."""
_GIB = 1 << 30
_CHUNK = 32
"""Classes looked through at first; then thrice as many as so far, at a time."""
_PATIENCE = 2048
"""Classes after which a GPU makes do with those found; a GPU with none looks through all."""
_ASKED = attrgetter(
    "priority", "memory", "alone", "gpus", "slots", "clients", "cpu", "host_memory", "host_storage",
    "products", "nodes", "duration", "thread_percent",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class OfferedClass:
    """Waiting jobs that ask for the same."""

    demand: int
    """Place of their demand in the catalogue."""
    like: Job
    waiting: list[Job] = field(default_factory=list)
    """The next one is at the end."""


Priced = tuple[Floats, float]


@dataclass(frozen=True, slots=True, eq=False)
class Backlog:
    """What waits, for each GPU that shares the work."""

    demands: Integers
    """Place in the catalogue, for each class."""
    memory: Floats
    """GiB allocated by a job, for each class."""
    alone: NDArray[np.bool_]
    """Whether a job must have a GPU to itself, for each class."""
    counts: Floats
    gpus: int
    priced: dict[tuple[float, float], Priced]
    """What a second of the work of each demand is worth on GPUs of a memory and link, and what all
    of it is worth: what starts in a decision changes neither, so once is enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A GPU, who is on it, and whom it may take."""

    free: FreeGPU
    running: tuple[int, ...]
    """Demand of each job on it."""
    elapsed: tuple[float, ...]
    """Seconds since each of them started."""
    allocated: tuple[float, ...]
    """GiB that each of them allocates."""
    classes: tuple[int, ...]
    """Places of the classes offered, on the board."""
    jobs: tuple[Job, ...]
    """One of each of these classes."""
    demands: tuple[int, ...]
    """Their demands."""
    backlog: Backlog


class OfferRound:
    """The GPUs and the waiting jobs of one snapshot while they are dealt out.

    Parameters
    ----------
    snapshot
        The situation to decide on.
    catalogue
        Where demands are kept; several boards may share one.
    """

    def __init__(self, snapshot: Snapshot, catalogue: Catalogue) -> None:
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._active = [gpu.id for gpu in sorted(snapshot.gpus, key=_work_left)]
        self._gpus = max(len(snapshot.gpus), 1)
        self._classes = self._classes_of(snapshot, catalogue)
        self._held = {gpu.id: self._held_on(gpu.id, catalogue) for gpu in snapshot.gpus}
        likes = [job_class.like for job_class in self._classes]
        self._demands = np.array([job_class.demand for job_class in self._classes], np.int64)
        self._left = np.array([len(job_class.waiting) for job_class in self._classes], np.int64)
        self._memory = np.array([job.memory for job in likes], np.int64)
        self._asked = self._memory.copy()
        """The same, and `_GONE` where none is left."""
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
        """Offer jobs to the active GPUs; nothing is left to decide when there are no offers.

        Parameters
        ----------
        window
            Classes offered to a GPU at most; fewer when there are more GPUs than jobs.
        rows
            Combinations offered in all at most, as far as two classes each allow.
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
        """Start, for each offer, the jobs at the chosen places in it; with none, the GPU waits."""
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
            # What another offer of this round took (GPUs of the node, its CPU) is wanted here too.
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

    def _held_on(self, gpu_id: str, catalogue: Catalogue) -> list[tuple[int, float, float]]:
        """Return demand, seconds since the start and GiB allocated of each job that a GPU runs."""
        free = self._capacity[gpu_id]
        return [
            (
                catalogue.index(holder),
                0.0 if isinstance(holder, Job) else holder.elapsed,
                (free.gpu.memory if holder.alone else holder.memory) / _GIB,
            )
            for holder in free.holders.values()
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
        """Return the active GPUs that some waiting job may still have."""
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
        """Return the first classes of the highest priority that a GPU has room for."""
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
            if host:  # what a job does not ask cannot be lacking
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


def _work_left(gpu: GPU) -> float:
    """Return the seconds of work on a GPU, those of unknown duration left out."""
    known = [(one.duration, one.elapsed) for one in gpu.running if one.duration is not None]
    left = sum(max(duration - elapsed, 0.0) for duration, elapsed in known)
    return left + bool(gpu.running)
