"""A request in numbers, after resolving slices, history and out-of-memory growth."""

from collections.abc import Collection
from dataclasses import replace

from partita.models import GPUPartition, Outcome, SharingMode
from partita.models.quantities import MEBI
from partita.scheduling.avoided_nodes import without
from partita.scheduling.fault_policy import must_run_alone
from partita.scheduling.memory_request import (
    MemoryRequest,
    asked_request,
    fitting_slice,
    grown_request,
    largest_request,
    no_slice_holds,
    refused_guarantee,
    slice_request,
)
from partita.scheduling.node_fit import Largest, fit
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.scheduling.request import Request
from partita_policies import types as policy

__all__ = ["resolve", "with_profile"]


def resolve(
    request: Request,
    partition: GPUPartition,
    *,
    profile: policy.Profile | None = None,
    largest: Largest,
    avoided: Collection[str] = (),
) -> policy.Job | WaitingReason:
    """Convert a request to the numbers for policies and guard.

    Parameters
    ----------
    profile
        The history of its application.
    largest
        The largest capacity of a ready GPU and its node; zeros while no GPU is ready.
    avoided
        Nodes that it does not use as long as another node could run it.

    Returns
    -------
    policy.Job or WaitingReason
        The numbers, or why it can never be met as it is written. The reason OutOfMemory means that
        it has already had the most memory that it can get.
    """
    name, needs, attempts = partition.metadata.name, request.needs, request.attempts
    exclusive = partition.spec.sharing.mode is SharingMode.EXCLUSIVE
    mps = partition.spec.sharing.mode is SharingMode.MPS
    if problem := _problem(request, partition):
        return WaitingReason(Reason.INVALID_SPEC, problem)
    found = fit(needs, largest, name)
    if isinstance(found, WaitingReason):
        return found
    clients = request.processes if mps else 1
    contexts = found.largest.context_memory * clients
    known = found.largest.memory
    largest = replace(found.largest, memory=max(1, known - contexts) if known else 0)
    peak = profile.peak_memory if profile and request.learns else 0
    most = largest_request(request, partition, largest.memory)
    asked = asked_request(request, partition, peak, most)
    if asked is None:
        most = MemoryRequest(largest.memory, largest.memory)  # it runs alone
    tried = refused_guarantee(attempts, partition, most)
    if tried >= most.guarantee > 0 and not largest.arriving:
        return WaitingReason(Reason.OUT_OF_MEMORY, _nothing_larger(name, tried))
    wanted, threads = MemoryRequest(0, 0), request.threads or 100
    if asked is not None:
        wanted = grown_request(request, partition, asked, most)
    if partition.spec.slices and asked is not None:
        fixed = fitting_slice(request, partition, wanted)
        if fixed is None:
            return WaitingReason(
                Reason.NEVER_FITS, no_slice_holds(request, partition, wanted.guarantee)
            )
        wanted, threads = slice_request(fixed, partition), fixed.thread_percent
    threads = partition.spec.sharing.partition_share or threads
    wanted = wanted.in_mebibytes()
    if problem := _too_large(name, wanted.guarantee, request.gpus, clients, largest):
        return WaitingReason(Reason.NEVER_FITS, problem)
    asks = policy.Job(
        id=request.uid,
        name=request.name,
        namespace=request.namespace,
        application=request.application,
        memory=wanted.guarantee + contexts,
        memory_limit=wanted.ceiling + contexts if wanted.borrows else 0,
        context_memory=contexts,
        thread_percent=threads,
        gpus=request.gpus,
        slots=needs.slots,
        clients=clients,
        alone=exclusive or asked is None or must_run_alone(attempts),
        alone_by_faults=not exclusive and asked is not None and must_run_alone(attempts),
        priority=partition.spec.effective_priority(request.namespace, request.priority),
        duration=_duration(request, profile),
        submitted=request.submitted,
        reclaimed=bool(attempts) and attempts[-1].outcome is Outcome.RECLAIMED,
        profile=profile,
        cpu=needs.requests.cpu,
        host_memory=needs.requests.memory,
        host_storage=needs.requests.storage,
        lasting=request.lasting,
    )
    return replace(asks, nodes=without(avoided, found, asks))


def with_profile(
    resolved: policy.Job, request: Request, profile: policy.Profile | None
) -> policy.Job:
    """Return the numbers of a request that does not follow its history, with the current history.

    The result equals that of `resolve`, at a fraction of its cost: only profile and duration of
    such a request depend on the history.
    """
    return replace(resolved, profile=profile, duration=_duration(request, profile))


def _duration(request: Request, profile: policy.Profile | None) -> float | None:
    if request.lasting:
        return None  # the duration in its profile is that of what was measured until now
    return request.duration or (profile.duration if profile else None)


def _problem(request: Request, partition: GPUPartition) -> str:
    """Return which requirement no GPU of the partition can meet, of any size; empty if none."""
    sharing, name, slots = partition.spec.sharing, partition.metadata.name, request.needs.slots
    problem = "; ".join(request.needs.problems)
    if request.gpus > 1 and sharing.mode is not SharingMode.EXCLUSIVE:
        problem = (
            f"gpus: {request.gpus} needs a partition with sharing.mode Exclusive (an MPS client "
            f"reaches one GPU), and {name} has {sharing.mode}: write gpus: 1 (in a claim count: 1) "
            "or another partition"
        )
    elif request.slice and partition.spec.slice(request.slice) is None:
        there = ", ".join(s.name for s in partition.spec.slices)
        has = there or "no slices, write gpuMemory instead"
        problem = f"slice {request.slice} does not exist: partition {name} has {has}"
    elif request.memory_limit is not None and sharing.mode is not SharingMode.MPS:
        problem = (
            f"gpuMemoryLimit needs a partition with sharing.mode MPS, and {name} has "
            f"{sharing.mode}: remove gpuMemoryLimit, or use another partition"
        )
    elif sharing.partition_share is not None and ((request.threads or 0) > sharing.partition_share):
        problem = (
            f"threadPercent {request.threads} is more than the {sharing.partition_share} % of "
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
        and request.memory is not None
        and request.memory <= (request.processes - 1) * MEBI
    ):
        problem = (
            f"gpuMemory {gib(request.memory)} is less than 1 MiB for each of {request.processes} "
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
    """Return a message if a request is for more than the largest capacity; empty if not."""
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
