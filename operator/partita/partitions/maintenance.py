"""What nodes under maintenance mean for the GPUs on them. Pure.

There are two kinds of maintenance. A node that is cordoned takes no new Pods: its GPUs take no
new jobs, and once a GPU has none its server Pod may be evicted. A node whose labels ask GPU clients
to leave (a driver upgrade by NVIDIA's GPU Operator) needs more: its GPUs are drained, and their
server Pods deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partita.informer.views import NodeView, PodView
from partita.models import GPUServer

__all__ = ["Maintenance", "is_protected", "maintain"]


@dataclass(slots=True)
class Maintenance:
    """What is to be done; empty when no node asks for anything."""

    drain: list[GPUServer] = field(default_factory=list)
    """GPUServers that are to take no more jobs, and whose jobs are to end within drainTimeout."""
    resume: list[GPUServer] = field(default_factory=list)
    """GPUServers that were drained for maintenance that is over."""
    leave: list[PodView] = field(default_factory=list)
    """Server Pods that are to leave their node: no job is on their GPU any more."""


def maintain(
    servers: Sequence[GPUServer], pods: Mapping[str, PodView], nodes: Mapping[str, NodeView]
) -> Maintenance:
    """Compare what the nodes' labels ask for with what is there.

    Parameters
    ----------
    servers
        The GPUServers of a partition.
    pods
        Server Pods, by name of their GPUServer.
    nodes
        The nodes there are, by name.

    Notes
    -----
    A drain that somebody else asked for is neither taken over nor undone.
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
    """Tell whether the eviction API must not end a GPU's server Pod.

    While jobs are on the GPU that would end them all. While the GPU could take jobs at any moment,
    one might just be starting. So the Pod may be evicted once its node is cordoned, or is under
    maintenance, and the last job has left.

    Parameters
    ----------
    node
        The node of its server Pod; None where it is on none yet.
    """
    if server.status.allocations:
        return True
    return node is None or (node.schedulable and not node.maintenance)
