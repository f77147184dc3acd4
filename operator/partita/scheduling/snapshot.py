"""Snapshot of a partition for a policy: the GPUs on which jobs can be placed, and the queue."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache

from partita.models import GPUPartition, GPUServer
from partita.scheduling.agent_reports import contexts_of, max_clients
from partita.scheduling.claim_request import settings_of
from partita.scheduling.gpu_state import server_state
from partita.scheduling.node_resources import requested_by
from partita.store.state import State
from partita_policies import types as policy
from partita_policies.amounts import GPUAmounts

__all__ = ["capacity_of_server", "gpu_of", "gpus_of", "snapshot_of"]


def gpus_of(
    partition: GPUPartition,
    state: State,
    known: dict[str, tuple[GPUServer, policy.GPU]] | None = None,
) -> tuple[policy.GPU, ...]:
    """Return the GPUs of a partition on which jobs can be placed, with their allocations.

    Parameters
    ----------
    known
        The GPUs found earlier in this cycle, by name, which is updated. A GPU is read again only
        if its GPUServer has changed: what has changed of its jobs' Pods and profiles counts from
        the next cycle on.
    """
    cap = cache(partition.spec.priority_cap)
    known = {} if known is None else known
    found = []
    for server in state.servers_of(partition.metadata.name):
        if server_state(server, partition, state) == "Ready":
            name = server.metadata.name
            if name not in known or known[name][0] is not server:
                known[name] = (server, gpu_of(server, partition, state, cap))
            found.append(known[name][1])
    return tuple(found)


def capacity_of_server(server: GPUServer, partition: GPUPartition) -> GPUAmounts:
    """Return what can be allocated of a GPU in total."""
    places = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
    memory = partition.spec.allocatable(server.status.memory)
    return GPUAmounts(memory, places, max_clients(server) or places)


def gpu_of(
    server: GPUServer,
    partition: GPUPartition,
    state: State,
    cap: Callable[[str], int],
) -> policy.GPU:
    """Return a GPU with its allocations, whether or not jobs can be placed on it.

    Parameters
    ----------
    cap
        Returns the highest priority of a namespace.
    """
    status = server.status
    has = capacity_of_server(server, partition)
    return policy.GPU(
        id=server.metadata.name,
        node=status.node,
        memory=has.memory,
        max_jobs=has.places,
        max_clients=has.clients,
        product=status.product,
        sm_count=status.sm_count,
        pcie_bandwidth=status.pcie_bandwidth,
        sm_partitions=status.sm_partitions or 0,
        running=tuple(_running_jobs(server, state, cap)),
    )


def _running_jobs(
    server: GPUServer, state: State, cap: Callable[[str], int]
) -> list[policy.RunningJob]:
    running = []
    for uid, allocation in server.status.allocations.items():
        application = allocation.application
        settings = settings_of(allocation, state)
        profile = state.profiles.profile(allocation.namespace, application, server.status.product)
        requests, _ = requested_by(allocation, state)
        contexts = contexts_of(uid, [server])
        limit = allocation.memory_limit
        running.append(
            policy.RunningJob(
                job=uid,
                memory=allocation.memory + contexts,
                memory_limit=limit + contexts if limit else 0,
                application=application,
                namespace=allocation.namespace,
                thread_percent=allocation.thread_percent,
                slots=allocation.slots,
                clients=allocation.clients,
                alone=allocation.alone,
                priority=min(settings.priority, cap(allocation.namespace)),
                started=allocation.since.timestamp() if allocation.since else None,
                duration=settings.duration or (profile.duration if profile else None),
                profile=profile,
                cpu=requests.cpu,
                host_memory=requests.memory,
                host_storage=requests.storage,
                lasting=allocation.lasting,
            )
        )
    return running


def snapshot_of(
    partition: GPUPartition,
    jobs: Sequence[policy.Job],
    gpus: tuple[policy.GPU, ...],
    nodes: tuple[policy.Node, ...],
    now: datetime,
) -> policy.Snapshot:
    """Return an immutable snapshot of a partition for a policy; `jobs` are in queue order."""
    return policy.Snapshot(
        partition=partition.metadata.name,
        time=now.timestamp(),
        jobs=tuple(jobs),
        gpus=gpus,
        sharing=policy.Sharing(partition.spec.sharing.mode),
        nodes=nodes,
        objective=policy.Objective(partition.spec.objective),
    )
