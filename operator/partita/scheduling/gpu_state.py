"""Whether and until when jobs can be on a GPU."""

from collections.abc import Iterable
from datetime import datetime

from partita.models import GPUPartition, GPUServer
from partita.models.partition import GPUPartitionSpec
from partita.models.partition_status import GPUState
from partita.models.quantities import later
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.state import State

__all__ = [
    "drain_deadline",
    "readable_partition",
    "server_state",
    "takes_pods",
    "times_of",
]

_DEFAULTS = GPUPartitionSpec(gpus=0)
"""Times for jobs whose partition is missing."""


def times_of(partition: str, state: State) -> GPUPartitionSpec:
    """Return the spec that contains a partition's times; the defaults if it is missing."""
    found = state.partitions.get(partition)
    return found.spec if found else _DEFAULTS


def readable_partition(name: str, state: State) -> GPUPartition | WaitingReason:
    """Return a partition that takes jobs, or why there is none of this name."""
    if unknown := state.unknown_of(name):
        return WaitingReason(Reason.PARTITION_UNREADABLE, unknown)
    found = state.partitions.get(name)
    if found is None or found.metadata.deletion_timestamp:
        there = ", ".join(sorted(state.partitions)) or "none"
        return WaitingReason(
            Reason.PARTITION_NOT_FOUND,
            f"there is no GPUPartition {name} (there is: {there}): create it or name another",
        )
    return found


def drain_deadline(server: str, state: State) -> datetime | None:
    """Return when the jobs on a drained or released GPU are ended; None if it is neither."""
    found = state.servers.get(server)
    since = found.out_of_service_since if found else None
    if found is None or since is None:
        return None
    name = found.spec.partition
    if name not in state.partitions and state.unknown_of(name):
        return None  # the drain timeout is unknown
    return later(since, times_of(name, state).drain_timeout)


def takes_pods(names: Iterable[str], state: State) -> bool:
    """Return whether a Pod that has allocations on these GPUServers may start."""
    servers = [state.servers[name] for name in names]
    return len({s.status.node for s in servers}) == 1 and all(
        s.out_of_service_since is None
        and s.spec.partition in state.partitions
        and s.status.uuid
        and s.status.node
        for s in servers
    )


def server_state(server: GPUServer, partition: GPUPartition, state: State) -> GPUState:
    """Return the state of a GPU: `Ready` if jobs can be placed on it, or why they cannot."""
    status = server.status
    if server.metadata.deletion_timestamp or partition.metadata.deletion_timestamp:
        return "Draining"
    if state.unreadable.get(server.metadata.uid):
        return "Unready"
    if server.spec.drain_since:
        return "Drained"
    if status.holds("Faulted"):
        return "Faulted"
    if not status.uuid or not status.memory or status.condition("Ready") is None:
        pod = state.server_pod(server.metadata.name)
        reason = pod.startup.reason if pod is not None and pod.startup is not None else ""
        return "Unschedulable" if reason == "Unschedulable" else "Starting"
    if not _selected(server, partition) or server.spec.mode is not partition.spec.sharing.mode:
        return "Mismatched"
    return "Ready" if status.holds("Ready") and _is_up(server, state) else "Unready"


def _is_up(server: GPUServer, state: State) -> bool:
    """Return whether the agent's last report is still valid and Pods may start on its node."""
    node, pod = state.nodes.get(server.status.node), state.server_pod(server.metadata.name)
    if pod is None or pod.deleting or pod.outcome.finished:
        return False
    return node is not None and node.ready and node.schedulable


def _selected(server: GPUServer, partition: GPUPartition) -> bool:
    selector, status = partition.spec.gpu_selector, server.status
    if selector.products and status.product not in selector.products:
        # Node labels have hyphens where NVML has spaces (GPU feature discovery).
        return status.product.replace(" ", "-") in selector.products
    return selector.min_memory is None or status.memory >= selector.min_memory
