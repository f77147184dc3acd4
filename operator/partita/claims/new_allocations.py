"""New allocations: the entries of jobs and claims in the ledger, and the allocations of Pods.

A job gets its ceiling only on GPUs on which the driver limits memory. Elsewhere it is limited to
its guarantee, and an Event says why. The ceiling is never above the allocatable memory of the GPU.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.models.sharing import Burst
from partita.pods.allocation import JobAllocation
from partita.scheduling.reasons import gib
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["grown_entry", "job_allocation", "ledger_entries", "unused_ceiling"]


def ledger_entries(
    job: Job,
    memory: Mapping[str, int],
    servers: Mapping[str, GPUServer],
    pod: PodView | None,
    since: datetime,
) -> dict[str, Allocation]:
    """Return the entries of a job or a claim in the ledgers of its GPUs, by GPUServer.

    Parameters
    ----------
    memory
        Allocatable bytes of the GPUs, by GPUServer.
    servers
        The GPUServers. One that was deleted meanwhile is missing.
    pod
        The Pod that gets them; None if it is not created yet.
    since
        When it is allocated.
    """
    entries = {}
    for name, allocatable in memory.items():
        has = allocatable if job.alone and not job.alone_by_faults else job.memory
        has -= job.context_memory
        limit = min(job.memory_limit, allocatable) - job.context_memory
        server = servers.get(name)
        borrows = limit > has and server is not None and _limited_by_driver(server)
        entries[name] = Allocation(
            namespace=job.namespace,
            name=job.name.partition("/")[2],
            attempt=(pod.attempt or None) if pod else None,
            pod=pod.name if pod else "",
            pod_uid=pod.uid if pod else "",
            application=job.application,
            lasting=job.lasting,
            memory=has,
            memory_limit=limit if borrows else None,
            thread_percent=job.thread_percent,
            slots=job.slots,
            clients=job.clients,
            alone=job.alone,
            stores_usage=name == min(memory),
            since=since,
        )
    return entries


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
        "memory_limit": limit if limit > memory and _limited_by_driver(server) else None,
        "thread_percent": job.thread_percent,
        "grown_since": since,
    }
    return entry.model_copy(update=update)


def _limited_by_driver(server: GPUServer) -> bool:
    return server.status.enforcement == "Driver"


def job_allocation(
    job: SharedGPUJob,
    attempt: int,
    allocated: Mapping[str, Allocation],
    servers: Sequence[GPUServer],
    partition: GPUPartition,
) -> JobAllocation:
    """Return the allocation of the Pod of an attempt.

    Parameters
    ----------
    allocated
        Its entries in the ledger, by GPUServer.
    servers
        These GPUServers, in the same order.
    """
    first = next(iter(allocated.values()))
    by_driver = all(map(_limited_by_driver, servers))
    return JobAllocation(
        attempt=attempt,
        servers=tuple(allocated),
        uuids=tuple(s.status.uuid for s in servers),
        node=servers[0].status.node,
        memory=min(a.memory for a in allocated.values()),
        memory_limit=first.memory_limit if by_driver else None,
        driver_limits=by_driver,
        total_memory=min(s.status.memory for s in servers),
        mode=servers[0].spec.mode,
        # The SM partition of the slot limits the threads; percentages do not apply there.
        thread_percent=100 if servers[0].status.sm_partitions else first.thread_percent,
        protocol=servers[0].status.protocol or 2,
        oversubscription=partition.spec.sharing.oversubscription,
        device_injection=partition.spec.device_injection,
        tolerations=partition.spec.tolerations,
        yields=min(job.spec.priority, partition.spec.priority_cap(job.metadata.namespace)) < 0,
    )


def unused_ceiling(
    job: SharedGPUJob, allocated: Mapping[str, Allocation], partition: GPUPartition
) -> str:
    """Return why a job that asks for a ceiling is limited to its guarantee; empty if it is not."""
    fixed = partition.spec.slice(job.spec.slice) if job.spec.slice else None
    guarantee, wanted = (
        (fixed.memory, fixed.memory_limit)
        if fixed is not None
        else (job.spec.gpu_memory, job.spec.gpu_memory_limit)
    )
    entries = allocated.values()
    if (
        not allocated
        or not wanted
        or wanted == guarantee
        or any(a.memory_limit or a.alone for a in entries)
    ):
        return ""
    limited = f"so the job is limited to {gib(min(a.memory for a in entries))}"
    field = "memoryLimit of its slice" if fixed is not None else "gpuMemoryLimit"
    if partition.spec.sharing.burst is Burst.NEVER:
        name = partition.metadata.name
        return f"{field} has no effect: partition {name} has sharing.burst Never, {limited}"
    (server,) = allocated
    return (
        f"{field} has no effect on {server}: the driver does not limit memory there (see the "
        f"condition DriverLimits of the GPUServer), {limited}"
    )
