"""The free capacity of the GPUs of one snapshot: which job fits where.

Used by the policies and by the operator's guard, which makes the final decision. Invariants:
allocated memory <= the GPU's memory, slots <= `max_jobs`, MPS clients <= `max_clients`; a job that
must be alone is alone; a job on several GPUs has that many different GPUs on one node; a job runs
only on nodes that it may use; and if a node's CPU, memory and ephemeral storage are known, no more
than that is allocated.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from partita_policies.capacity_shortage import CapacityError, CapacityShortage
from partita_policies.hosts import Hosts
from partita_policies.misfits import Misfits
from partita_policies.types import GPU, Job, Node, RunningJob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from partita_policies.gpu_index import GPUIndex

__all__ = [
    "CapacityError",
    "CapacityShortage",
    "Choice",
    "FreeCapacity",
    "FreeGPU",
]


class Choice(StrEnum):
    """Which of the GPUs that a job fits it gets; the first of several equal ones."""

    FIRST = "First"
    """The first in the snapshot's order."""
    LEAST_LOADED = "LeastLoaded"
    """The one with the fewest jobs, then the most free memory."""
    TIGHTEST = "Tightest"
    """The one with the least free memory."""


@dataclass(slots=True)
class FreeGPU:
    """Free capacity of one GPU. Read-only; only `FreeCapacity` changes it."""

    gpu: GPU
    memory: int
    """Bytes; below zero if more is allocated than the GPU (now) has."""
    slots: int
    clients: int
    alone: bool = False
    """Whether a job on it must be alone."""
    holders: dict[str, RunningJob | Job] = field(default_factory=dict)
    """The jobs on it, by id."""


class FreeCapacity:
    """The free capacity of some GPUs during one decision.

    Parameters
    ----------
    gpus
        The GPUs with their allocations. Allocations that already exceed a GPU are accepted: no
        other job fits there until enough is released.
    nodes
        CPU, memory and ephemeral storage of the GPUs' nodes; a node that is not listed is not
        checked.

    Notes
    -----
    Searches are fast with thousands of GPUs and jobs. They use arrays over all GPUs
    (`partita_policies.gpu_index`), built at the first search, and store the smallest sizes of each
    shape of job that fit no GPU.
    """

    def __init__(self, gpus: Iterable[GPU], nodes: Sequence[Node] = ()) -> None:
        self._free: dict[str, FreeGPU] = {}
        self._where: dict[str, list[str]] = {}
        self.hosts = Hosts(nodes) if nodes else None
        """Free CPU, memory and ephemeral storage of nodes; None if unknown for all nodes."""
        self._known = (tuple(gpus), tuple(nodes))
        """The GPUs and nodes as in the snapshot."""
        self._touched: set[str] = set()
        """The GPUs on which something has been taken or given back since."""
        for gpu in self._known[0]:
            free = FreeGPU(gpu, gpu.memory, gpu.max_jobs, gpu.max_clients)
            self._free[gpu.id] = free
            for running_job in gpu.running:
                self._hold(free, running_job.job, running_job)
        self._rows = list(self._free.values())
        self._position = {gpu_id: position for position, gpu_id in enumerate(self._free)}
        self._nodes: dict[str, list[FreeGPU]] = {}
        for free in self._rows:
            self._nodes.setdefault(free.gpu.node, []).append(free)
        self._index: GPUIndex | None = None
        self._misfits = Misfits()

    def __getitem__(self, gpu_id: str) -> FreeGPU:
        return self._free[gpu_id]

    def __contains__(self, gpu_id: object) -> bool:
        return gpu_id in self._free

    @property
    def index(self) -> "GPUIndex":
        """The same in arrays over all GPUs, in the snapshot's order; kept up to date."""
        if self._index is None:
            from partita_policies.gpu_index import GPUIndex  # noqa: PLC0415 - loads numpy

            self._index = GPUIndex(self._rows, self.hosts)
        return self._index

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs for which some GPU may have enough memory once it is their turn.

        In a long queue this passes over nearly all, and is far faster than `find` of each.
        """
        most = self.index.most
        largest = max(most)
        for job in jobs:
            if job.memory <= largest and job.memory <= most[job.alone]:  # mostly one look at it
                yield job
                if self.index.most is not most:  # it has taken what others may need
                    most = self.index.most
                    largest = max(most)

    def holds(self, job_id: str) -> bool:
        """Return whether a job has a GPU, taken here or allocated before."""
        return job_id in self._where

    def without_gpus(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that have no GPU."""
        return [job for job in jobs if job.id not in self._where]

    def why_not(self, job: Job, gpu_id: str) -> CapacityShortage | None:
        """Return why a job does not fit a GPU, or None if it fits."""
        free = self._free.get(gpu_id)
        if free is None:
            return CapacityShortage.UNKNOWN
        if job.id in free.holders:
            return CapacityShortage.ALLOCATED
        return self._shortage(job, job.memory, free)

    def _shortage(self, job: Job, memory: int, free: FreeGPU) -> CapacityShortage | None:
        """Return why such a job without an allocation does not fit with an amount of memory."""
        refusal: CapacityShortage | None = None
        if job.products and free.gpu.product not in job.products:
            refusal = CapacityShortage.PRODUCT
        elif job.nodes and free.gpu.node not in job.nodes:
            refusal = CapacityShortage.NOT_ELIGIBLE
        elif memory > free.gpu.memory:
            refusal = CapacityShortage.MEMORY
        elif free.alone or (job.alone and free.holders):
            refusal = CapacityShortage.ALONE
        elif memory > free.memory:
            refusal = CapacityShortage.MEMORY
        elif job.slots > free.slots:
            refusal = CapacityShortage.JOBS
        elif job.clients > free.clients:
            refusal = CapacityShortage.CLIENTS
        elif self.hosts is not None and not self.hosts.has(free.gpu.node, job):
            refusal = CapacityShortage.HOST
        return refusal

    def why_not_together(self, job: Job, gpu_ids: Sequence[str]) -> CapacityShortage | None:
        """Return why a job cannot start on exactly these GPUs, or None if it can."""
        if job.id in self._where:
            return CapacityShortage.ALLOCATED
        if len(gpu_ids) == 1 and job.gpus == 1:
            return self.why_not(job, gpu_ids[0])
        for gpu_id in gpu_ids:
            refusal = self.why_not(job, gpu_id)
            if refusal is not None:
                return refusal
        if not len(gpu_ids) == len(set(gpu_ids)) == job.gpus:
            return CapacityShortage.COUNT
        if job.gpus > 1 and len({self._free[gpu_id].gpu.node for gpu_id in gpu_ids}) > 1:
            return CapacityShortage.NODE
        return None

    def first_fit(self, job: Job, node: str | None = None) -> tuple[str, ...] | None:
        """Return the first GPUs, in the snapshot's order, that the job fits now.

        Parameters
        ----------
        job
            A job without an allocation.
        node
            Search only this node.

        Returns
        -------
        tuple of str or None
            As many GPU ids as the job requests, all on one node; None if it does not fit.
        """
        if node is None:
            return self.find(job, Choice.FIRST)
        if job.id in self._where:
            return None
        members = [free.gpu.id for free in self._nodes.get(node, ())]
        fitting = [gpu_id for gpu_id in members if self.why_not(job, gpu_id) is None]
        return tuple(fitting[: job.gpus]) if len(fitting) >= job.gpus else None

    def find(
        self, job: Job, choice: Choice, among: "NDArray[np.bool_] | None" = None
    ) -> tuple[str, ...] | None:
        """Return the chosen GPUs among those that a job fits now, as `first_fit` does.

        A job on several GPUs gets those of the first node with enough of them; with
        `Choice.LEAST_LOADED` of the node with the most GPUs that it fits, and with
        `Choice.TIGHTEST` of the one with the fewest.

        Parameters
        ----------
        among
            With `Choice.FIRST`: which GPUs, in the snapshot's order, may be chosen. A later search
            may not have more of them.
        """
        if job.id in self._where or self.is_known_not_to_fit(job):
            return None
        if choice is Choice.LEAST_LOADED and job.gpus == 1 and not job.alone and self._rows:
            # Faster than a search, and mostly fits.
            least = self._rows[self.index.least_loaded()].gpu.id
            if self.reach(job, least) >= job.memory:
                return (least,)
        found = self.index.find(job, choice, among)
        if not found:
            self._misfits.add(job)
            return None
        return tuple([self._rows[position].gpu.id for position in found])

    def is_known_not_to_fit(self, job: Job) -> bool:
        """Return whether a search has already failed for such a job or a smaller one."""
        return self._misfits.include(job)

    def reach(self, job: Job, gpu_id: str) -> int:
        """Return how much memory such a job can request on a GPU and enough others of its node.

        Returns
        -------
        int
            Bytes; -1 if the job does not fit the GPU, or not enough GPUs of the node, with any
            amount of memory.
        """
        free = self._free[gpu_id]
        here = self._reach(job, free)
        if job.gpus == 1 or here == -1:
            return here
        members = self._nodes[free.gpu.node]
        reaches = sorted((self._reach(job, member) for member in members), reverse=True)
        return min(here, reaches[job.gpus - 1]) if len(reaches) >= job.gpus else -1

    def take(self, job: Job, gpu_ids: Sequence[str]) -> None:
        """Allocate these GPUs to a job.

        Raises
        ------
        CapacityError
            The job does not fit; nothing has changed.
        """
        refusal = self.why_not_together(job, gpu_ids)
        if refusal is not None:
            raise CapacityError(f"job {job.id} cannot have {', '.join(gpu_ids)}: {refusal}")
        self.allocate(job, gpu_ids)

    def place(
        self, job: Job, choice: Choice, among: "NDArray[np.bool_] | None" = None
    ) -> tuple[str, ...] | None:
        """Allocate the GPUs that `find` returns to a job, and return them."""
        gpu_ids = self.find(job, choice, among)
        if gpu_ids is not None:
            self.allocate(job, gpu_ids)
        return gpu_ids

    def follow(self, gpus: Sequence[GPU], nodes: Sequence[Node]) -> bool:
        """Continue with a later snapshot, as if it had been built from it.

        GPUs that are the same objects are not read again, so this takes far less time if few
        have changed.

        Returns
        -------
        bool
            Whether the GPUs and nodes are those of before; if not, nothing has changed.
        """
        known, known_nodes = self._known
        if len(gpus) != len(known) or tuple(nodes) != known_nodes:
            return False
        changed = [(new, old) for new, old in zip(gpus, known, strict=True) if new is not old]
        if any(_place_of(new) != _place_of(old) for new, old in changed):
            return False
        for new, _ in changed:
            self._free[new.id].gpu = new
        self._touched.update(new.id for new, _ in changed)
        again = [self._free[gpu_id] for gpu_id in self._touched]
        for free in again:
            self._clear(free)
        for free in again:
            for running_job in free.gpu.running:
                self._hold(free, running_job.job, running_job)
        for free in again:
            self._reindex((free.gpu.id,))
        self._known = (tuple(gpus), known_nodes)
        self._touched.clear()
        self._misfits.clear()
        return True

    def give_back(self, job_id: str) -> None:
        """Release all allocations of a job, taken here or allocated before.

        Raises
        ------
        CapacityError
            The job has no allocation.
        """
        gpu_ids = self._where.pop(job_id, None)
        if gpu_ids is None:
            raise CapacityError(f"job {job_id} holds no GPU")
        for gpu_id in gpu_ids:
            free = self._free[gpu_id]
            holder = free.holders.pop(job_id)
            free.memory += free.gpu.memory if holder.alone else holder.memory
            free.slots += holder.slots
            free.clients += holder.clients
            free.alone = any(other.alone for other in free.holders.values())
        if self.hosts is not None:
            self.hosts.give_back(free.gpu.node, holder)
        self._reindex(gpu_ids)
        self._misfits.clear()

    def resize(self, job_id: str, memory: int) -> None:
        """Change the bytes that a job holds on each of its GPUs; it must not be alone there."""
        for gpu_id in self._where[job_id]:
            free = self._free[gpu_id]
            holder = free.holders[job_id]
            free.memory += holder.memory - memory
            free.holders[job_id] = replace(holder, memory=memory)
        self._reindex(self._where[job_id])
        self._misfits.clear()

    def allocate(self, job: Job, gpu_ids: Sequence[str]) -> None:
        """Allocate GPUs that the job is known to fit; `take` checks it."""
        for gpu_id in gpu_ids:
            self._hold(self._free[gpu_id], job.id, job)
        self._reindex(gpu_ids)

    def _clear(self, free: FreeGPU) -> None:
        """Release all allocations of a GPU."""
        gpu = free.gpu
        for job_id, holder in free.holders.items():
            where = self._where[job_id]
            where.remove(gpu.id)
            if not where:
                del self._where[job_id]
                if self.hosts is not None:
                    self.hosts.give_back(gpu.node, holder)
        free.memory, free.slots, free.clients = gpu.memory, gpu.max_jobs, gpu.max_clients
        free.alone, free.holders = False, {}

    def _hold(self, free: FreeGPU, job_id: str, holder: RunningJob | Job) -> None:
        if self.hosts is not None and job_id not in self._where:
            self.hosts.take(free.gpu.node, holder)
        free.holders[job_id] = holder
        if holder.alone:
            free.memory -= free.gpu.memory
            free.alone = True
        else:
            free.memory -= holder.memory
        free.slots -= holder.slots
        free.clients -= holder.clients
        where = self._where.get(job_id)
        if where is None:
            self._where[job_id] = [free.gpu.id]
        else:
            where.append(free.gpu.id)

    def _reindex(self, gpu_ids: Iterable[str]) -> None:
        """Note a change on GPUs of one node."""
        self._touched.update(gpu_ids)
        if self._index is None:
            return
        for gpu_id in gpu_ids:
            free = self._free[gpu_id]
            self._index.update(self._position[gpu_id], free)
        if self.hosts is not None and (left := self.hosts.left(free.gpu.node)) is not None:
            self._index.update_node(free.gpu.node, left)

    def _reach(self, job: Job, free: FreeGPU) -> int:
        return free.memory if self._shortage(job, 0, free) is None else -1


def _place_of(gpu: GPU) -> tuple[str, str, str]:
    return (gpu.id, gpu.node, gpu.product)
