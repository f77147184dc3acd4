"""What is left of the CPU, memory and ephemeral storage of nodes, beside their GPUs."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from partita_policies.types import Job, Node, RunningJob

__all__ = ["Hosts"]

_PLENTY = 2**62
"""What an unlisted node is taken to have: more than anything asks for."""


class Hosts:
    """The CPU, memory and ephemeral storage left on some nodes, and who takes them.

    Parameters
    ----------
    nodes
        A node that is not among them has as much as anybody asks.

    Notes
    -----
    Each amount is kept twice: as numbers, for questions about one node, and in arrays, for
    questions about all nodes at once.
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
        """Return what is left on a node; None when unknown.

        Returns
        -------
        tuple or None
            Thousandths of a CPU, bytes of memory and bytes of ephemeral storage; below zero where
            more is taken than there is.
        """
        return self._left.get(node)

    def has(self, node: str, job: Job) -> bool:
        """Say whether a node has what a job asks; what it does not ask cannot be lacking."""
        left = self._left.get(node)
        return left is None or (
            (not job.cpu or job.cpu <= left[0])
            and (not job.host_memory or job.host_memory <= left[1])
            and (not job.host_storage or job.host_storage <= left[2])
        )

    def arrange(self, nodes: Sequence[str], shared: Sequence[int], idle: Sequence[int]) -> None:
        """Tell of all GPUs: their nodes, and how much memory a job may ask of each.

        Parameters
        ----------
        nodes
            Of each GPU, in the order in which `places` is to look.
        shared, idle
            Bytes for a job that shares, and for one that must be alone; -1: no job at all.
        """
        unlisted = len(self._position)
        self._node_of = np.array([self._position.get(node, unlisted) for node in nodes], np.intp)
        self._trees = np.array([shared, idle], np.int64)

    def set_free(self, index: int, shared: int, idle: int) -> None:
        """Tell that one GPU has more or less room now."""
        self._trees[:, index] = shared, idle

    def places(self, job: Job) -> list[int]:
        """Return which GPUs have the memory that a job asks, on nodes that have the rest."""
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
        """Take what a holder asks, also where it is more than there is."""
        self._add(node, -holder.cpu, -holder.host_memory, -holder.host_storage)

    def give_back(self, node: str, holder: RunningJob | Job) -> None:
        """Give back what a holder took."""
        self._add(node, holder.cpu, holder.host_memory, holder.host_storage)

    def _add(self, node: str, cpu: int, memory: int, storage: int) -> None:
        if (cpu or memory or storage) and node in self._left:
            left = self._left[node]
            self._left[node] = left = (left[0] + cpu, left[1] + memory, left[2] + storage)
            position = self._position[node]
            self._cpu[position], self._memory[position], self._storage[position] = left
