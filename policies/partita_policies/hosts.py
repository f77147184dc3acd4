"""Free CPU, memory and ephemeral storage of nodes."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from partita_policies.types import Job, Node, RunningJob

__all__ = ["Hosts"]

_PLENTY = 2**62
"""Amount assumed for an unlisted node: more than any request."""


class Hosts:
    """Free CPU, memory and ephemeral storage of nodes.

    Parameters
    ----------
    nodes
        A node that is not listed has unlimited resources.

    Notes
    -----
    Each amount is stored twice: as a number for queries about one node, and in arrays for queries
    about all nodes at once.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._left = {node.id: (node.cpu, node.memory, node.storage) for node in nodes}
        self._position = {name: position for position, name in enumerate(self._left)}
        amounts = np.fromiter(
            chain.from_iterable((*self._left.values(), (_PLENTY, _PLENTY, _PLENTY))), np.int64
        )
        self._cpu, self._memory, self._storage = amounts.reshape(-1, 3).T.copy()
        self.arrange((), (), ())

    def left(self, node: str) -> tuple[int, int, int] | None:
        """Return the free resources of a node; None if unknown.

        Returns
        -------
        tuple or None
            Thousandths of a CPU, bytes of memory and bytes of ephemeral storage; below zero if
            more is allocated than the node has.
        """
        return self._left.get(node)

    def has(self, node: str, job: Job) -> bool:
        """Return whether a node has the resources of a job; amounts of 0 always fit."""
        left = self._left.get(node)
        return left is None or (
            (not job.cpu or job.cpu <= left[0])
            and (not job.host_memory or job.host_memory <= left[1])
            and (not job.host_storage or job.host_storage <= left[2])
        )

    def arrange(self, nodes: Sequence[str], shared: Sequence[int], idle: Sequence[int]) -> None:
        """Set the nodes of all GPUs and the memory that a job can request on each GPU.

        Parameters
        ----------
        nodes
            Node of each GPU, in the order in which `places` returns GPUs.
        shared, idle
            Bytes for a job that shares a GPU, and for a job that must be alone; -1: no job fits.
        """
        unlisted = len(self._position)
        self._node_of = np.array([self._position.get(node, unlisted) for node in nodes], np.intp)
        self._trees = np.array([shared, idle], np.int64)

    def set_free(self, index: int, shared: int, idle: int) -> None:
        """Update the free memory of one GPU."""
        self._trees[:, index] = shared, idle

    def places(self, job: Job) -> list[int]:
        """Return the indices of GPUs with enough memory on nodes with enough other resources."""
        fits = self._trees[int(job.alone)] >= job.memory
        if job.cpu:
            fits &= (self._cpu >= job.cpu)[self._node_of]
        if job.host_memory:
            fits &= (self._memory >= job.host_memory)[self._node_of]
        if job.host_storage:
            fits &= (self._storage >= job.host_storage)[self._node_of]
        found: list[int] = np.flatnonzero(fits).tolist()
        return found

    def take(self, node: str, holder: RunningJob | Job) -> None:
        """Allocate the resources of a job, even if they exceed the free ones."""
        self._add(node, -holder.cpu, -holder.host_memory, -holder.host_storage)

    def give_back(self, node: str, holder: RunningJob | Job) -> None:
        """Release the resources of a job."""
        self._add(node, holder.cpu, holder.host_memory, holder.host_storage)

    def _add(self, node: str, cpu: int, memory: int, storage: int) -> None:
        if (cpu or memory or storage) and node in self._left:
            left = self._left[node]
            self._left[node] = left = (left[0] + cpu, left[1] + memory, left[2] + storage)
            position = self._position[node]
            self._cpu[position], self._memory[position], self._storage[position] = left
