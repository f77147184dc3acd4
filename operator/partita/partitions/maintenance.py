"""Effects of node maintenance on GPUs. No I/O.

There are two kinds of maintenance. On a cordoned node no new Pods start: no jobs are placed on its
GPUs, and the server Pod of a GPU without jobs may be evicted. A node whose labels ask GPU clients
to leave (a driver upgrade by NVIDIA's GPU Operator) needs more: its GPUs are drained, and their
server Pods are deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partita.models import GPUServer
from partita.store.views import NodeView, PodView

__all__ = ["Maintenance", "is_protected", "maintain"]


@dataclass(slots=True)
class Maintenance:
    """Changes to make; empty if no node needs any."""

    drain: list[GPUServer] = field(default_factory=list)
    """GPUServers to drain: they get no new jobs, and their jobs must end within drainTimeout."""
    resume: list[GPUServer] = field(default_factory=list)
    """GPUServers that were drained for a maintenance that is over."""
    leave: list[PodView] = field(default_factory=list)
    """Server Pods to delete, because no job is left on their GPU."""


def maintain(
    servers: Sequence[GPUServer], pods: Mapping[str, PodView], nodes: Mapping[str, NodeView]
) -> Maintenance:
    """Compare the state requested by the nodes' labels with the actual one.

    Parameters
    ----------
    servers
        The GPUServers of a partition.
    pods
        Server Pods, by name of their GPUServer.
    nodes
        The existing nodes, by name.

    Notes
    -----
    A drain that was requested in another way is neither changed nor undone.
    """
    todo = Maintenance()
    asking = {name for name, node in nodes.items() if node.maintenance}
    for server in servers:
        if server.metadata.deletion_timestamp is not None:
            continue  # it is drained and released in any case
        pod = pods.get(server.metadata.name)
        must_leave = server.status.node in asking
        if must_leave and server.spec.drain_since is None:
            todo.drain.append(server)
        elif server.spec.drain_reason is not None and not must_leave:
            todo.resume.append(server)
        if (
            pod is not None
            and pod.node in asking
            and not pod.deleting
            and not server.status.allocations
            and (server.spec.drain_since is not None or not server.status.uuid)
        ):
            todo.leave.append(pod)
    return todo


def is_protected(server: GPUServer, node: NodeView | None) -> bool:
    """Return whether a GPU's server Pod must be protected from the eviction API.

    Eviction would end all jobs on the GPU. As long as jobs can be placed on the GPU, one may just
    be starting. So the Pod may be evicted once its node is cordoned or under maintenance, and the
    last job has ended.

    Parameters
    ----------
    node
        The node of the server Pod; None if it is not bound to one.
    """
    if server.status.allocations:
        return True
    return node is None or (node.schedulable and not node.maintenance)
