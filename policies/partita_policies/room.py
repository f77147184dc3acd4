"""The free room of the GPUs of one snapshot: what may be placed where.

Shared by the policies, which ask it what fits, and by the operator's guard, whose word is final:
memory booked <= the GPU's, slots <= `max_jobs`, MPS clients <= `max_clients`, a job that must be
alone is alone, and a job on several GPUs has that many different ones on one node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from partita_policies.types import GPU, Booking, Job

__all__ = ["Free", "Refusal", "Room", "RoomError"]

_NONE = -1
"""No index; also the height of a GPU that takes nobody, below any amount of memory."""


class RoomError(ValueError):
    """Something was to be taken that there is no room for, or given back that nobody holds."""


class Refusal(StrEnum):
    """Why a job cannot have a GPU, or a set of them."""

    UNKNOWN = "Unknown"
    """There is no such GPU among those that may take jobs."""
    COUNT = "Count"
    """Not as many different GPUs as the job asks for."""
    NODE = "Node"
    """The GPUs are not all on one node."""
    BOOKED = "Booked"
    """The job holds a GPU already."""
    ALONE = "Alone"
    """Somebody is alone on the GPU, or this job must be and somebody else is there."""
    MEMORY = "Memory"
    """Not enough memory is free."""
    JOBS = "Jobs"
    """Too few of the GPU's `max_jobs` slots are free."""
    CLIENTS = "Clients"
    """Too few of the GPU's MPS clients are free."""


@dataclass(slots=True)
class Free:
    """What is left of one GPU. To be read; only `Room` changes it."""

    gpu: GPU
    memory: int
    """Bytes; below zero when more is booked than the GPU (now) has."""
    slots: int
    clients: int
    alone: bool = False
    """Somebody on it must be alone."""
    holders: dict[str, Booking | Job] = field(default_factory=dict)
    """Who is on it, by job id."""


class _Heights:
    """Finds the first index whose height is at least so much: a max-tree, O(log n)."""

    def __init__(self, heights: Sequence[int]) -> None:
        self._size = 1 << max(len(heights) - 1, 0).bit_length()
        self._tree = [_NONE] * (2 * self._size)
        self._tree[self._size : self._size + len(heights)] = heights
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    def __getitem__(self, index: int) -> int:
        return self._tree[self._size + index]

    @property
    def highest(self) -> int:
        return self._tree[1]

    def set(self, index: int, height: int) -> None:
        tree, node = self._tree, self._size + index
        tree[node] = height
        while node > 1:
            node >>= 1
            higher = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == higher:
                return
            tree[node] = higher

    def first(self, least: int, start: int = 0) -> int:
        """Return the first index from `start` on of at least this height, or -1."""
        if start >= self._size:
            return _NONE
        tree, node = self._tree, self._size + start if start else 1
        while tree[node] < least:  # climb to the next subtree on the right
            while node & 1:
                node >>= 1
            if not node:
                return _NONE
            node += 1
        while node < self._size:
            node *= 2
            if tree[node] < least:
                node += 1
        return node - self._size


class Room:
    """The room left on some GPUs, and who takes it, in one decision.

    Parameters
    ----------
    gpus
        The GPUs with what is booked on them. Bookings that already exceed a GPU are taken as
        they are: nothing more fits there until enough is given back.

    Notes
    -----
    `first_fit` stays fast with thousands of GPUs and jobs: an index over free memory, and for
    each kind of job the smallest memory that is known to fit nowhere any more.
    """

    def __init__(self, gpus: Iterable[GPU]) -> None:
        self._free: dict[str, Free] = {}
        self._where: dict[str, list[str]] = {}
        for gpu in gpus:
            free = Free(gpu, gpu.memory, gpu.max_jobs, gpu.max_clients)
            self._free[gpu.id] = free
            for booking in gpu.bookings:
                self._hold(free, booking.job, booking)
        self._rows = list(self._free.values())
        self._index = {gpu_id: index for index, gpu_id in enumerate(self._free)}
        self._nodes: dict[str, list[int]] = {}
        for index, free in enumerate(self._rows):
            self._nodes.setdefault(free.gpu.node, []).append(index)
        self._shared = _Heights([self._shared_height(free) for free in self._rows])
        self._idle = _Heights([self._idle_height(free) for free in self._rows])
        self._too_big: dict[tuple[bool, int, int, int], int] = {}

    def __getitem__(self, gpu_id: str) -> Free:
        return self._free[gpu_id]

    def __contains__(self, gpu_id: object) -> bool:
        return gpu_id in self._free

    @property
    def full(self) -> bool:
        """Whether no GPU takes another job, however small."""
        return self._shared.highest == _NONE

    @property
    def has_idle(self) -> bool:
        """Whether some GPU has nobody on it."""
        return self._idle.highest != _NONE

    def why_not(self, job: Job, gpu_id: str) -> Refusal | None:
        """Say what keeps a job from one GPU, or None when it may have it."""
        free = self._free.get(gpu_id)
        refusal: Refusal | None = None
        if free is None:
            refusal = Refusal.UNKNOWN
        elif job.id in free.holders:
            refusal = Refusal.BOOKED
        elif job.memory > free.gpu.memory:
            refusal = Refusal.MEMORY
        elif free.alone or (job.alone and free.holders):
            refusal = Refusal.ALONE
        elif job.memory > free.memory:
            refusal = Refusal.MEMORY
        elif job.slots > free.slots:
            refusal = Refusal.JOBS
        elif job.clients > free.clients:
            refusal = Refusal.CLIENTS
        return refusal

    def why_not_together(self, job: Job, gpu_ids: Sequence[str]) -> Refusal | None:
        """Say what keeps a job from starting on exactly these GPUs, or None when it may."""
        if job.id in self._where:
            return Refusal.BOOKED
        if any(gpu_id not in self._free for gpu_id in gpu_ids):
            return Refusal.UNKNOWN
        if len(gpu_ids) != job.gpus or len(set(gpu_ids)) != job.gpus:
            return Refusal.COUNT
        if len({self._free[gpu_id].gpu.node for gpu_id in gpu_ids}) > 1:
            return Refusal.NODE
        for gpu_id in gpu_ids:
            refusal = self.why_not(job, gpu_id)
            if refusal is not None:
                return refusal
        return None

    def first_fit(self, job: Job) -> tuple[str, ...] | None:
        """Find the first GPUs, in the snapshot's order, that the job may have now.

        Returns
        -------
        tuple of str or None
            As many GPU ids as the job asks for, all on one node; None when it does not fit.
        """
        if job.id in self._where:
            return None
        kind = (job.alone, job.gpus, job.slots, job.clients)
        too_big = self._too_big.get(kind)
        if too_big is not None and job.memory >= too_big:
            return None
        found = self._first_one(job) if job.gpus == 1 else self._first_node(job)
        if found is None:
            self._too_big[kind] = job.memory
        return found

    def take(self, job: Job, gpu_ids: Sequence[str]) -> None:
        """Give a job these GPUs.

        Raises
        ------
        RoomError
            It may not have them; nothing has changed.
        """
        refusal = self.why_not_together(job, gpu_ids)
        if refusal is not None:
            raise RoomError(f"job {job.id} cannot have {', '.join(gpu_ids)}: {refusal}")
        for gpu_id in gpu_ids:
            free = self._free[gpu_id]
            self._hold(free, job.id, job)
            self._reindex(gpu_id, free)

    def give_back(self, job_id: str) -> None:
        """Free all that a job holds, whether it took it here or was booked before.

        Raises
        ------
        RoomError
            It holds nothing.
        """
        gpu_ids = self._where.pop(job_id, None)
        if gpu_ids is None:
            raise RoomError(f"job {job_id} holds no GPU")
        for gpu_id in gpu_ids:
            free = self._free[gpu_id]
            holder = free.holders.pop(job_id)
            free.memory += free.gpu.memory if holder.alone else holder.memory
            free.slots += holder.slots
            free.clients += holder.clients
            free.alone = any(other.alone for other in free.holders.values())
            self._reindex(gpu_id, free)
        self._too_big.clear()

    def _hold(self, free: Free, job_id: str, holder: Booking | Job) -> None:
        free.holders[job_id] = holder
        free.memory -= free.gpu.memory if holder.alone else holder.memory
        free.slots -= holder.slots
        free.clients -= holder.clients
        free.alone = free.alone or holder.alone
        self._where.setdefault(job_id, []).append(free.gpu.id)

    def _reindex(self, gpu_id: str, free: Free) -> None:
        index = self._index[gpu_id]
        self._shared.set(index, self._shared_height(free))
        self._idle.set(index, self._idle_height(free))

    @staticmethod
    def _shared_height(free: Free) -> int:
        taken = free.alone or free.slots < 1 or free.clients < 1
        return _NONE if taken else max(free.memory, _NONE)

    @staticmethod
    def _idle_height(free: Free) -> int:
        return _NONE if free.holders else free.gpu.memory

    def _first_one(self, job: Job) -> tuple[str, ...] | None:
        heights = self._idle if job.alone else self._shared
        index = heights.first(job.memory)
        while index != _NONE:
            gpu_id = self._rows[index].gpu.id
            if self.why_not(job, gpu_id) is None:
                return (gpu_id,)
            index = heights.first(job.memory, index + 1)
        return None

    def _first_node(self, job: Job) -> tuple[str, ...] | None:
        heights = self._idle if job.alone else self._shared
        if heights.highest < job.memory:
            return None
        for members in self._nodes.values():
            if len(members) < job.gpus:
                continue
            high = (self._rows[i].gpu.id for i in members if heights[i] >= job.memory)
            fitting = [gpu_id for gpu_id in high if self.why_not(job, gpu_id) is None]
            if len(fitting) >= job.gpus:
                return tuple(fitting[: job.gpus])
        return None
