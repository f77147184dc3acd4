"""What a partition looks like to a policy: its GPUs that may take jobs, and its queue."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Literal

from partita.constants import MPS_MAX_CLIENTS
from partita.models import GPUPartition, GPUServer, SharingMode
from partita.models.base import seconds_since
from partita.scheduling.request import Largest, bookable, to_profile
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
    mps = server.spec.mode is SharingMode.MPS
    max_jobs = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
    return policy.GPU(
        id=server.metadata.name,
        node=status.node,
        memory=bookable(status.memory, partition),
        max_jobs=max_jobs,
        max_clients=MPS_MAX_CLIENTS if mps else max_jobs,
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
        history = state.profiles.get(allocation.namespace, application)
        measured = history.spec.measurement(server.status.product) if history else None
        expected = job.spec.expected_duration if job else None
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
                duration=expected or (measured.duration if measured else None),
                profile=to_profile(application, measured) if measured else None,
            )
        )
    return bookings


def largest_of(partition: GPUPartition, state: State) -> Largest:
    """Return the most that a GPU of the partition could give were it empty.

    A GPU that is unready or drained for a while still counts: it will come back.
    """
    memory, arriving = 0, False
    on_node: dict[str, int] = {}
    for server in state.servers_of(partition.metadata.name):
        stands = server_state(server, partition, state)
        if stands in {"Draining", "Mismatched"}:
            continue
        if not server.status.uuid:
            # One whose Pod no node has taken may be waited for in vain.
            pod = state.server_pod(server.metadata.name)
            arriving |= stands == "Starting" and pod is not None and bool(pod.node)
            continue
        memory = max(memory, bookable(server.status.memory, partition))
        on_node[server.status.node] = on_node.get(server.status.node, 0) + 1
    return Largest(memory, max(on_node.values(), default=0), arriving)


def snapshot_of(
    partition: GPUPartition,
    jobs: Sequence[policy.Job],
    gpus: tuple[policy.GPU, ...],
    now: datetime,
) -> policy.Snapshot:
    """Freeze a partition for a policy; `jobs` are in queue order."""
    return policy.Snapshot(
        partition=partition.metadata.name,
        time=now.timestamp(),
        jobs=tuple(jobs),
        gpus=gpus,
        sharing=policy.Sharing(partition.spec.sharing.mode),
    )
