"""What a partition looks like to a policy: its GPUs that may take jobs, and its queue."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Literal

from partita.models import GPUPartition, GPUServer
from partita.models.base import seconds_since
from partita.scheduling.node_fit import Host, Largest
from partita.scheduling.nodes import requested_by
from partita.scheduling.reports import max_clients
from partita.scheduling.request import bookable
from partita.scheduling.state import State
from partita_policies import types as policy

__all__ = ["ServerState", "gpus_of", "largest_of", "server_state", "snapshot_of"]

ServerState = Literal[
    "Ready", "Starting", "Drained", "Draining", "Faulted", "Unready", "Mismatched"
]
"""`Draining` GPUs are given back, `Drained` ones only take no jobs for a while."""


def server_state(server: GPUServer, partition: GPUPartition, state: State) -> ServerState:
    """Tell whether a GPU may take jobs, and if not, why."""
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
        return "Starting"
    if not _selected(server, partition) or server.spec.mode is not partition.spec.sharing.mode:
        return "Mismatched"
    return "Ready" if status.holds("Ready") and _is_up(server, state) else "Unready"


def _is_up(server: GPUServer, state: State) -> bool:
    """Tell whether what the agent reported last still stands, and Pods may start on its node."""
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


def gpus_of(partition: GPUPartition, state: State, now: datetime) -> tuple[policy.GPU, ...]:
    """Return the GPUs of a partition that may take jobs, with what is booked on them."""
    cap = cache(partition.spec.priority_cap)
    return tuple(
        _gpu(server, partition, state, now, cap)
        for server in state.servers_of(partition.metadata.name)
        if server_state(server, partition, state) == "Ready"
    )


def _gpu(
    server: GPUServer,
    partition: GPUPartition,
    state: State,
    now: datetime,
    cap: Callable[[str], int],
) -> policy.GPU:
    status = server.status
    max_jobs = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
    return policy.GPU(
        id=server.metadata.name,
        node=status.node,
        memory=bookable(status.memory, partition),
        max_jobs=max_jobs,
        max_clients=max_clients(server) or max_jobs,
        product=status.product,
        sm_count=status.sm_count,
        pcie_bandwidth=status.pcie_bandwidth,
        bookings=tuple(_bookings(server, state, now, cap)),
    )


def _bookings(
    server: GPUServer, state: State, now: datetime, cap: Callable[[str], int]
) -> list[policy.Booking]:
    bookings = []
    for uid, allocation in server.status.allocations.items():
        job = state.jobs.get(uid)
        application = (job.spec.application if job else None) or ""
        profile = state.profiles.profile(allocation.namespace, application, server.status.product)
        expected = job.spec.expected_duration if job else None
        requests, _ = requested_by(uid, allocation.attempt, state)
        bookings.append(
            policy.Booking(
                job=uid,
                memory=allocation.memory,
                application=application,
                namespace=allocation.namespace,
                thread_percent=allocation.thread_percent,
                slots=allocation.slots,
                clients=allocation.clients,
                alone=allocation.alone,
                priority=min(job.spec.priority if job else 0, cap(allocation.namespace)),
                elapsed=seconds_since(allocation.since, now),
                duration=expected or (profile.duration if profile else None),
                profile=profile,
                cpu=requests.cpu,
                host_memory=requests.memory,
                host_storage=requests.storage,
            )
        )
    return bookings


def largest_of(partition: GPUPartition, state: State) -> Largest:
    """Return the most that a GPU of the partition could give were it empty.

    A GPU that is unready or drained for a while still counts: it will come back.
    """
    hosts: dict[str, Host] = {}
    for server in state.servers_of(partition.metadata.name):
        stands = server_state(server, partition, state)
        if stands in {"Draining", "Mismatched"}:
            continue
        arriving = not server.status.uuid
        name = server.status.node
        if arriving:
            # One whose Pod no node has taken may be waited for in vain.
            pod = state.server_pod(server.metadata.name)
            if stands != "Starting" or pod is None or not pod.node:
                continue
            name = pod.node
        node, known = state.nodes.get(name), hosts.get(name, Host(name))
        hosts[name] = Host(
            name,
            node.info if node else None,
            memory=max(known.memory, bookable(server.status.memory, partition)),
            gpus=known.gpus + (not arriving),
            arriving=known.arriving or arriving,
            clients=max(known.clients, 0 if arriving else max_clients(server)),
        )
    return Largest.of(hosts.values(), partition.spec.tolerations)


def snapshot_of(
    partition: GPUPartition,
    jobs: Sequence[policy.Job],
    gpus: tuple[policy.GPU, ...],
    nodes: tuple[policy.Node, ...],
    now: datetime,
) -> policy.Snapshot:
    """Freeze a partition for a policy; `jobs` are in queue order."""
    return policy.Snapshot(
        partition=partition.metadata.name,
        time=now.timestamp(),
        jobs=tuple(jobs),
        gpus=gpus,
        sharing=policy.Sharing(partition.spec.sharing.mode),
        nodes=nodes,
    )
