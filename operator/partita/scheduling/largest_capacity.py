"""The largest capacity of a partition's GPUs and nodes, kept up to date."""

from collections import defaultdict
from collections.abc import Sequence
from operator import is_
from typing import Any

from partita.models import GPUPartition, GPUServer
from partita.scheduling.agent_reports import context_memory, max_clients
from partita.scheduling.gpu_state import server_state
from partita.scheduling.node_fit import Host, Largest
from partita.store.state import State

__all__ = ["LargestCapacity"]


class LargestCapacity:
    """The largest capacity of an empty GPU of one partition.

    A GPU is looked at again only if it, its server Pod, its node or the partition has changed:
    those of a large partition come up one after the other.
    """

    def __init__(self) -> None:
        self._partition: Any = None
        self._gpus: dict[str, tuple[Sequence[object], Host | None]] = {}
        """Of each GPUServer the objects that its capacity depends on, and the capacity."""

    def compute(self, partition: GPUPartition, state: State) -> Largest:
        """Return it. GPUs that are unready or drained count, as they will be available again."""
        wanted = partition.spec, partition.metadata.deletion_timestamp
        known = self._gpus if wanted == self._partition else {}
        self._partition, self._gpus = wanted, {}
        hosts: defaultdict[str, list[Host]] = defaultdict(list)
        for server in state.servers_of(partition.metadata.name):
            name = server.metadata.name
            pod = state.server_pod(name)
            basis = (
                server,
                pod,
                state.nodes.get(server.status.node),
                state.nodes.get(pod.node) if pod is not None else None,
                state.unreadable.get(server.metadata.uid),
            )
            kept = known.get(name)
            if kept is None or not all(map(is_, basis, kept[0])):
                kept = basis, _capacity(server, partition, state)
            self._gpus[name] = kept
            if (host := kept[1]) is not None:
                hosts[host.name].append(host)
        return Largest.of(map(_together, hosts.values()), partition.spec.tolerations)


def _capacity(server: GPUServer, partition: GPUPartition, state: State) -> Host | None:
    """Return a node as if a GPU were its only one; None if no jobs will be placed on the GPU."""
    gpu_state = server_state(server, partition, state)
    if gpu_state in {"Draining", "Mismatched"}:
        return None
    arriving = not server.status.uuid
    name = server.status.node
    if arriving:
        # A GPU whose Pod is not bound to a node may never become available.
        pod = state.server_pod(server.metadata.name)
        if gpu_state != "Starting" or pod is None or not pod.node:
            return None
        name = pod.node
    node = state.nodes.get(name)
    return Host(
        name,
        node.info if node else None,
        memory=partition.spec.allocatable(server.status.memory),
        gpus=int(not arriving),
        arriving=arriving,
        clients=0 if arriving else max_clients(server),
        context_memory=context_memory(server),
        protocol=server.status.protocol or 2,
    )


def _together(gpus: Sequence[Host]) -> Host:
    """Return a node with all these GPUs."""
    if len(gpus) == 1:
        return gpus[0]
    return Host(
        gpus[0].name,
        gpus[0].info,
        memory=max(gpu.memory for gpu in gpus),
        gpus=sum(gpu.gpus for gpu in gpus),
        arriving=any(gpu.arriving for gpu in gpus),
        clients=max(gpu.clients for gpu in gpus),
        context_memory=max(gpu.context_memory for gpu in gpus),
        protocol=max(gpu.protocol for gpu in gpus),
    )
