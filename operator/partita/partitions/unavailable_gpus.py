"""Messages for a partition's status about GPUs on which no jobs can be placed. No I/O."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partita.constants import GPU_RESOURCE
from partita.models import GPUPartition, GPUServer
from partita.models.partition_status import GPUState
from partita.pods.gpu_operator import LABEL_PRODUCT
from partita.scheduling.gpu_state import server_state
from partita.store.state import State
from partita.store.views import NodeView

__all__ = ["StuckPods", "stuck_servers", "why_unavailable"]

_NAMED = 3
"""Maximum number of GPUServers named in a message, and of different reasons. Further GPUServers are
only counted."""
_MAX_WORDS = 1000
"""Maximum characters of Kubernetes' message about one Pod."""


def why_unavailable(
    server: GPUServer, partition: GPUPartition, gpu_state: GPUState, state: State
) -> str:
    """Return why no jobs can be placed on a GPU; empty if they can, or the reason is unknown.

    Parameters
    ----------
    gpu_state
        Its state, as returned by `server_state`.
    """
    pod = state.server_pod(server.metadata.name)
    node = state.nodes.get(server.status.node)
    match gpu_state:
        case "Starting" | "Unschedulable":
            return pod.stuck if pod is not None else ""
        case "Drained" if server.spec.drain_reason is not None:
            label = node.maintenance if node is not None else ""
            return (
                f"node {server.status.node} is under maintenance ({label or 'which has ended'}): "
                f"jobs on the GPU end within {partition.spec.drain_timeout:g} s, then the GPU is "
                f"released until the maintenance is over{_still_used(server)}"
            )
        case "Drained" | "Draining":
            return f"it gets no jobs{_still_used(server)}"
        case "Unready":
            return _why_unready(server, state)
        case _:
            return ""


def _still_used(server: GPUServer) -> str:
    """Return how many Pods still use a GPU, and where their names are.

    Everybody may read the status of a partition, and not the names of others' Pods.
    """
    allocations = server.status.allocations.values()
    if not (count := len(allocations)):
        return ""
    pods = "1 Pod uses it" if count == 1 else f"{count} Pods use it"
    if kept := sum(bool(one.not_evicted) for one in allocations):
        pods = f"{pods}, and budgets protect {kept} of these from eviction"
    return f"; {pods}: see `kubectl describe gpuserver {server.metadata.name}`"


def _why_unready(server: GPUServer, state: State) -> str:
    node, pod = state.nodes.get(server.status.node), state.server_pod(server.metadata.name)
    if node is None:
        return f"node {server.status.node} is gone"
    if not node.ready:
        return f"node {node.name} is not ready"
    if not node.schedulable:
        return f"node {node.name} is cordoned: `kubectl uncordon {node.name}` ends that"
    if pod is not None and pod.stuck:
        return pod.stuck
    ready, probe = server.status.condition("Ready"), state.probe_pod(server)
    message = ready.message if ready is not None and ready.status != "True" else ""
    if probe is not None and probe.stuck:
        message = f"{message}; its probe Pod {probe.key} does not start: {probe.stuck}"
    return message


@dataclass(frozen=True, slots=True)
class StuckPods:
    """Reason and message about server Pods that do not start."""

    reason: str
    """Machine-readable reason."""
    message: str
    """Message for users: Kubernetes' own message, and what to do."""


def stuck_servers(partition: GPUPartition, state: State) -> StuckPods | None:
    """Return why server Pods of a partition do not start; None if all of them start."""
    words: dict[str, list[str]] = {}
    placed = True
    servers = state.servers_of(partition.metadata.name)
    for server in servers:
        pod = state.server_pod(server.metadata.name)
        if server.metadata.deletion_timestamp is None and pod is not None and pod.stuck:
            words.setdefault(pod.stuck, []).append(server.metadata.name)
            placed &= bool(pod.node)
    if not words:
        return None
    found = "; ".join(
        f"{_names(names)} cannot start: {why[:_MAX_WORDS].rstrip('.')}"
        for why, names in list(words.items())[:_NAMED]
    )
    if placed:
        return StuckPods("ServerPodsStuck", found)
    message = f"{found}. {_advice(partition, state.nodes)}"
    if any(_lacks_gpus(why) for why in words):
        unscheduled = sum(server_state(s, partition, state) == "Unschedulable" for s in servers)
        wanted = partition.spec.gpus
        message = f"{wanted - unscheduled} of {wanted} GPUs could be allocated: {message}"
        return StuckPods("InsufficientGPUs", message)
    return StuckPods("Unschedulable", message)


def _lacks_gpus(why: str) -> bool:
    """Return whether kube-scheduler says that the nodes have no free GPU left.

    The second text is of its plugin `dynamicresources`, for claims.
    """
    return f"Insufficient {GPU_RESOURCE}" in why or "cannot allocate all claims" in why


def _advice(partition: GPUPartition, nodes: Mapping[str, NodeView]) -> str:
    if partition.spec.gpu_source == "DRA":
        return f"See the GPUs: kubectl get resourceslices. {_changes(partition)}"
    counts = Counter(node.labels.get(LABEL_PRODUCT, "") for node in nodes.values())
    del counts[""]
    products = [f"{name} ({_nodes(count)})" for name, count in sorted(counts.items())]
    there = f"GPU products of the nodes: {', '.join(products)}"
    if not products:
        there = f"No node has the label {LABEL_PRODUCT} of GPU feature discovery"
    elif missing := sorted(set(partition.spec.gpu_selector.products) - counts.keys()):
        there = f"No node has {' or '.join(missing)}. {there}"
    return f"{there}. {_changes(partition)}"


def _changes(partition: GPUPartition) -> str:
    fields = [
        name
        for name, given in (
            ("gpuSelector.products", partition.spec.gpu_selector.products),
            ("gpuSelector.minMemory", partition.spec.gpu_selector.min_memory),
            ("nodeSelector", partition.spec.node_selector),
        )
        if given
    ]
    change = f"change spec.{', spec.'.join(fields)}, " if fields else ""
    return f"To go on, {change}add GPUs, free some, or lower spec.gpus"


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _names(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
