"""Free CPU, memory and ephemeral storage of nodes."""

from collections.abc import Iterable

from partita_policies.types import Job, Node, RunningJob

__all__ = ["Hosts"]


class Hosts:
    """Free CPU, memory and ephemeral storage of nodes.

    Parameters
    ----------
    nodes
        A node that is not listed has unlimited resources.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._left = {node.id: (node.cpu, node.memory, node.storage) for node in nodes}

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

    def take(self, node: str, holder: RunningJob | Job) -> None:
        """Allocate the resources of a job, even if they exceed the free ones."""
        self._add(node, -holder.cpu, -holder.host_memory, -holder.host_storage)

    def give_back(self, node: str, holder: RunningJob | Job) -> None:
        """Release the resources of a job."""
        self._add(node, holder.cpu, holder.host_memory, holder.host_storage)

    def _add(self, node: str, cpu: int, memory: int, storage: int) -> None:
        if (cpu or memory or storage) and node in self._left:
            left = self._left[node]
            self._left[node] = (left[0] + cpu, left[1] + memory, left[2] + storage)
