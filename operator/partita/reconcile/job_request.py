"""A job's request in numbers, after resolving slices, history and out-of-memory growth."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from partita.models import Attempt, GPUPartition, Outcome, SharedGPUJob, SharingMode
from partita.models.quantities import MEBI
from partita.pods.node_requirements import Needs, read_needs
from partita.reconcile.avoided_nodes import without
from partita.reconcile.fault_policy import must_run_alone
from partita.reconcile.memory_request import (
    MemoryRequest,
    asked_request,
    fitting_slice,
    grown_request,
    largest_request,
    no_slice_holds,
    raised_request,
    refused_guarantee,
    slice_request,
)
from partita.reconcile.node_fit import Largest, fit
from partita.reconcile.reasons import Reason, Why, gib
from partita_policies import types as policy

__all__ = [
    "Largest",
    "allocatable",
    "resolve",
    "takes_memory_from_history",
    "with_profile",
]


def allocatable(total: int, partition: GPUPartition) -> int:
    """Return a GPU's allocatable bytes: its memory less the partition's reserve, in whole MiB."""
    share = total * (100 - partition.spec.sharing.memory_reserve_percent) // 100
    return share // MEBI * MEBI


def resolve(
    job: SharedGPUJob,
    partition: GPUPartition,
    *,
    attempts: Sequence[Attempt] = (),
    refused: int = 0,
    profile: policy.Profile | None = None,
    largest: Largest,
    avoided: Collection[str] = (),
    needs: Needs | None = None,
) -> policy.Job | Why:
    """Convert a job's spec to the numbers for policies and guard.

    Parameters
    ----------
    attempts
        Its attempts so far. Those that ran out of memory increase its request, and after GPU
        faults it may have to run alone.
    refused
        Bytes with which a Pod of its application ran out of memory; 0 if none did. It is for
        claims, which have no attempts.
    profile
        The history of its application.
    largest
        The largest capacity of a ready GPU and its node; zeros while no GPU is ready.
    avoided
        Nodes that it does not use as long as another node could run it.
    needs
        The requirements of its Pod; None for those of its template.

    Returns
    -------
    policy.Job or Why
        The request, or why it can never be met as it is written. The reason OutOfMemory means that
        the job has already had the most memory that it can get.
    """
    spec, name = job.spec, partition.metadata.name
    exclusive = partition.spec.sharing.mode is SharingMode.EXCLUSIVE
    mps = partition.spec.sharing.mode is SharingMode.MPS
    needs = needs or read_needs(spec.template)
    if problem := _problem(job, partition, needs.problems, needs.slots):
        return Why(Reason.INVALID_SPEC, problem)
    found = fit(needs, largest, name)
    if isinstance(found, Why):
        return found
    clients = spec.processes if mps else 1
    contexts = found.largest.context_memory * clients
    known = found.largest.memory
    largest = replace(found.largest, memory=max(1, known - contexts) if known else 0)
    peak = profile.peak_memory if profile and takes_memory_from_history(job) else 0
    most = largest_request(job, partition, largest.memory)
    asked = asked_request(job, partition, peak, most)
    if asked is None:
        most = MemoryRequest(largest.memory, largest.memory)  # it runs alone
    tried = refused_guarantee(attempts, partition, most)
    if tried >= most.guarantee > 0 and not largest.arriving:
        return Why(Reason.OUT_OF_MEMORY, _nothing_larger(name, tried))
    wanted, threads = MemoryRequest(0, 0), spec.thread_percent or 100
    if asked is not None:
        wanted = grown_request(asked, job, partition, attempts=attempts, most=most)
        wanted = raised_request(wanted, refused, partition.spec.out_of_memory, most)
    if partition.spec.slices and asked is not None:
        fixed = fitting_slice(partition, wanted, job)
        if fixed is None:
            return Why(Reason.NEVER_FITS, no_slice_holds(wanted.guarantee, job, partition))
        wanted, threads = slice_request(fixed, partition), fixed.thread_percent
    threads = partition.spec.sharing.partition_share or threads
    wanted = wanted.in_mebibytes()
    if problem := _too_large(name, wanted.guarantee, spec.gpus, clients, largest):
        return Why(Reason.NEVER_FITS, problem)
    created = job.metadata.creation_timestamp
    asks = policy.Job(
        id=job.metadata.uid,
        name=job.key,
        namespace=job.metadata.namespace,
        application=spec.application or "",
        memory=wanted.guarantee + contexts,
        memory_limit=wanted.ceiling + contexts if wanted.borrows else 0,
        context_memory=contexts,
        thread_percent=threads,
        gpus=spec.gpus,
        slots=needs.slots,
        clients=clients,
        alone=exclusive or asked is None or must_run_alone(attempts),
        alone_by_faults=not exclusive and asked is not None and must_run_alone(attempts),
        priority=min(spec.priority, partition.spec.priority_cap(job.metadata.namespace)),
        duration=_duration(job, profile),
        submitted=created.timestamp() if created else 0.0,
        reclaimed=bool(attempts) and attempts[-1].outcome is Outcome.RECLAIMED,
        profile=profile,
        cpu=needs.requests.cpu,
        host_memory=needs.requests.memory,
        host_storage=needs.requests.storage,
    )
    return replace(asks, nodes=without(avoided, found, asks))


def takes_memory_from_history(job: SharedGPUJob) -> bool:
    """Return whether the history of its application determines a job's memory."""
    return job.spec.slice is None and job.spec.gpu_memory is None


def with_profile(
    request: policy.Job, job: SharedGPUJob, profile: policy.Profile | None
) -> policy.Job:
    """Return the request of a job that specifies its memory, with the current history.

    The result equals that of `resolve`, at a fraction of its cost: only profile and duration of
    such a request depend on the history.
    """
    return replace(request, profile=profile, duration=_duration(job, profile))


def _duration(job: SharedGPUJob, profile: policy.Profile | None) -> float | None:
    return job.spec.expected_duration or (profile.duration if profile else None)


def _problem(
    job: SharedGPUJob, partition: GPUPartition, problems: Sequence[str], slots: int
) -> str:
    """Return which requirement no GPU of the partition can meet, of any size; empty if none.

    Parameters
    ----------
    problems
        Problems of its template.
    slots
        Containers of its template that use the GPUs at the same time.
    """
    spec, sharing, name = job.spec, partition.spec.sharing, partition.metadata.name
    problem = "; ".join(problems)
    if spec.gpus > 1 and sharing.mode is not SharingMode.EXCLUSIVE:
        problem = (
            f"gpus: {spec.gpus} needs a partition with sharing.mode Exclusive (an MPS client "
            f"reaches one GPU), and {name} has {sharing.mode}: write gpus: 1 or another partition"
        )
    elif spec.slice is not None and partition.spec.slice(spec.slice) is None:
        there = ", ".join(s.name for s in partition.spec.slices)
        has = there or "no slices, write gpuMemory instead"
        problem = f"slice {spec.slice} does not exist: partition {name} has {has}"
    elif spec.gpu_memory_limit is not None and sharing.mode is not SharingMode.MPS:
        problem = (
            f"gpuMemoryLimit needs a partition with sharing.mode MPS, and {name} has "
            f"{sharing.mode}: remove gpuMemoryLimit, or use another partition"
        )
    elif sharing.partition_share is not None and (
        (spec.thread_percent or 0) > sharing.partition_share
    ):
        problem = (
            f"threadPercent {spec.thread_percent} is more than the {sharing.partition_share} % of "
            f"a static SM partition of {name} (sharing.isolation StaticSM with maxJobsPerGPU "
            f"{sharing.max_jobs_per_gpu}): write {sharing.partition_share} or less, or leave it out"
        )
    elif slots > sharing.max_jobs_per_gpu:
        problem = (
            f"{slots} containers take more than the {sharing.max_jobs_per_gpu} places "
            f"(sharing.maxJobsPerGPU) of a GPU of {name}: use fewer containers"
        )
    elif (
        not problem
        and sharing.mode is SharingMode.MPS
        and spec.gpu_memory is not None
        and spec.gpu_memory <= (spec.processes - 1) * MEBI
    ):
        problem = (
            f"gpuMemory {gib(spec.gpu_memory)} is less than 1 MiB for each of {spec.processes} "
            "processes: ask for more, or use fewer processes"
        )
    return problem


def _nothing_larger(partition: str, refused: int) -> str:
    return (
        f"it ran out of GPU memory with {gib(refused)} allocated, and {partition} has no more to "
        "give on one GPU: make it use less (a smaller batch or model), or submit it to a partition "
        "with larger GPUs"
    )


def _too_large(partition: str, memory: int, gpus: int, clients: int, largest: Largest) -> str:
    """Return a message if a job requests more than the largest capacity; empty if not."""
    if largest.memory and memory > largest.memory:
        return (
            f"needs {gib(memory)} of GPU memory, but the largest GPU of {partition} has "
            f"{gib(largest.memory)} allocatable: ask for less, or add a larger GPU"
        )
    if largest.gpus_on_node and gpus > largest.gpus_on_node:
        return (
            f"needs {gpus} GPUs on one node, but {partition} has at most "
            f"{largest.gpus_on_node} on a node: ask for fewer"
        )
    if 0 < largest.clients < clients:
        return (
            f"needs {clients} MPS clients, but a GPU of {partition} serves at most "
            f"{largest.clients} with its driver: use fewer processes"
        )
    return ""
