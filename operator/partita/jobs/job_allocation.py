"""The allocations for which the Pods of jobs' attempts are created."""

from collections.abc import Mapping, Sequence

from partita.claims.new_allocations import limited_by_driver, share_of
from partita.constants import ANNOTATION_TEMPLATE
from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.models.sharing import Burst
from partita.pods.allocation import JobAllocation
from partita.pods.job_pod import build_job_pod, pod_name
from partita.pods.own_claims import own_claim_name
from partita.scheduling.reasons import gib
from partita.store.state import State
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["job_allocation", "ready_pod", "unused_ceiling"]


def job_allocation(
    job: SharedGPUJob,
    attempt: int,
    asks: Job,
    servers: Sequence[GPUServer],
    partition: GPUPartition,
) -> JobAllocation:
    """Return the allocation for which the Pod of an attempt is created.

    Parameters
    ----------
    asks
        What the job asks for.
    servers
        The GPUServers that were chosen, in name order.
    """
    shares = [share_of(asks, partition.spec.allocatable(s.status.memory), s) for s in servers]
    by_driver = all(map(limited_by_driver, servers))
    return JobAllocation(
        attempt=attempt,
        uuids=tuple(s.status.uuid for s in servers),
        memory=min(memory for memory, _ in shares),
        memory_limit=shares[0][1] if by_driver else None,
        driver_limits=by_driver,
        total_memory=min(s.status.memory for s in servers),
        mode=servers[0].spec.mode,
        # The SM partition of the slot limits the threads; percentages do not apply there.
        thread_percent=100 if servers[0].status.sm_partitions else asks.thread_percent,
        protocol=servers[0].status.protocol or 2,
        oversubscription=partition.spec.sharing.oversubscription,
        device_injection=partition.spec.device_injection,
        tolerations=partition.spec.tolerations,
        yields=partition.spec.effective_priority(job.metadata.namespace, job.spec.priority) < 0,
    )


def ready_pod(job: SharedGPUJob, wanted: JobAllocation, state: State) -> PodView | None:
    """Return the Pod of an attempt if it and its claim are there, made for this allocation."""
    uid, name = job.metadata.uid, pod_name(job.metadata.name, wanted.attempt)
    claim = state.claim_named(job.namespace, own_claim_name(name))
    pod = next((p for p in state.pods_of(uid) if p.name == name), None)
    if claim is None or not claim.may_be_placed or claim.user != uid:
        return None
    if pod is None or not pod.alive or pod.deleting or pod.other_gates:
        return None
    annotations = build_job_pod(job, wanted).manifest["metadata"]["annotations"]
    return pod if pod.template_hash == annotations[ANNOTATION_TEMPLATE] else None


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
