"""New entries of claims in the ledger.

A job gets its ceiling only on GPUs on which the driver limits memory. Elsewhere it is limited to
its guarantee, and an Event says why. The ceiling is never above the allocatable memory of the GPU.
"""

from collections.abc import Mapping
from datetime import datetime

from partita.models import Allocation, GPUServer
from partita.models.slice_parameters import SliceParameters
from partita.scheduling.claim_request import application_of, is_lasting
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita.store.workload_pod import WorkloadPod
from partita_policies.types import Job

__all__ = ["granted_entry", "grown_entry", "ledger_entries", "limited_by_driver", "share_of"]


def ledger_entries(
    job: Job,
    memory: Mapping[str, int],
    servers: Mapping[str, GPUServer],
    *,
    claim: ClaimView,
    pod: PodView,
    since: datetime,
) -> dict[str, Allocation]:
    """Return the entries of a claim in the ledgers of its GPUs, by GPUServer.

    Parameters
    ----------
    memory
        Allocatable bytes of the GPUs, by GPUServer.
    servers
        The GPUServers. One that was deleted meanwhile is missing.
    claim, pod
        The claim, and the Pod that uses it.
    since
        When it is allocated.
    """
    entries = {}
    for name, allocatable in memory.items():
        has, limit = share_of(job, allocatable, servers.get(name))
        entries[name] = Allocation(
            namespace=claim.namespace,
            name=claim.name,
            job=claim.job,
            job_uid=claim.job_uid,
            pod=pod.name,
            pod_uid=pod.uid,
            application=job.application,
            lasting=job.lasting,
            memory=has,
            memory_limit=limit,
            thread_percent=job.thread_percent,
            slots=job.slots,
            clients=job.clients,
            alone=job.alone,
            stores_usage=name == min(memory),
            since=since,
        )
    return entries


def granted_entry(
    claim: ClaimView, granted: SliceParameters, pod: PodView | None, since: datetime
) -> Allocation:
    """Return the entry of a claim as its own allocation says what it got of a GPU.

    Parameters
    ----------
    pod
        The Pod that uses it; None if that is not known.
    """
    workload = pod.workload if pod is not None else WorkloadPod()
    return Allocation(
        namespace=claim.namespace,
        name=claim.name,
        pod=pod.name if pod is not None else claim.owner_pod,
        pod_uid=pod.uid if pod is not None else claim.owner_pod_uid,
        application=application_of(workload),
        lasting=is_lasting(workload),
        memory=granted.memory,
        memory_limit=granted.memory_limit,
        thread_percent=granted.thread_percent,
        clients=granted.processes,
        since=since,
    )


def share_of(job: Job, allocatable: int, server: GPUServer | None) -> tuple[int, int | None]:
    """Return how much of a GPU's memory a job gets, and its ceiling if it has one."""
    has = allocatable if job.alone and not job.alone_by_faults else job.memory
    has -= job.context_memory
    limit = min(job.memory_limit, allocatable) - job.context_memory
    borrows = limit > has and server is not None and limited_by_driver(server)
    return has, limit if borrows else None


def grown_entry(entry: Allocation, job: Job, server: GPUServer, since: datetime) -> Allocation:
    """Return the entry of a claim with the larger memory that a job asks for.

    Parameters
    ----------
    since
        When it is raised.
    """
    memory, limit = (amount - job.context_memory for amount in (job.memory, job.memory_limit))
    update = {
        "memory": memory,
        "memory_limit": limit if limit > memory and limited_by_driver(server) else None,
        "thread_percent": job.thread_percent,
        "grown_since": since,
    }
    return entry.model_copy(update=update)


def limited_by_driver(server: GPUServer) -> bool:
    """Return whether the driver limits the memory of containers on a GPU."""
    return server.status.enforcement == "Driver"
