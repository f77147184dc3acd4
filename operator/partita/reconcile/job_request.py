"""A job's request in numbers, after resolving slices, history and out-of-memory growth."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from partita.models import Attempt, GPUPartition, Outcome, SharedGPUJob, SharingMode
from partita.models.partition import Slice
from partita.models.quantities import MEBI
from partita.pods.node_requirements import read_needs
from partita.reconcile.avoided_nodes import without
from partita.reconcile.fault_policy import must_run_alone
from partita.reconcile.node_fit import Largest, fit
from partita.reconcile.reasons import Reason, Why, gib
from partita_policies import types as policy

__all__ = [
    "HISTORY_MARGIN_PERCENT",
    "Largest",
    "allocatable",
    "asked_memory",
    "resolve",
    "takes_memory_from_history",
    "with_profile",
]

HISTORY_MARGIN_PERCENT = 10
"""Added to a measured peak if a job requests no memory amount or exceeded its allocation. An
assumption: runs differ."""


def allocatable(total: int, partition: GPUPartition) -> int:
    """Return a GPU's allocatable bytes: its memory less the partition's reserve, in whole MiB."""
    share = total * (100 - partition.spec.sharing.memory_reserve_percent) // 100
    return share // MEBI * MEBI


def asked_memory(
    job: SharedGPUJob, partition: GPUPartition, peak: int, limit: int = 0
) -> int | None:
    """Return the bytes that the job requests before any growth; None if they are unknown.

    Parameters
    ----------
    peak
        Peak memory in the application's history; 0 without a history.
    limit
        The most memory that it could get; 0 if unknown.
    """
    if job.spec.slice is not None:
        chosen = partition.spec.slice(job.spec.slice)
        return chosen.memory if chosen else None
    if job.spec.gpu_memory is not None:
        return job.spec.gpu_memory
    if peak:
        with_margin = _with_margin(peak)
        # The margin must not keep a job waiting that has run before.
        return min(with_margin, limit) if limit >= peak else with_margin
    return None


def _refused(attempts: Sequence[Attempt]) -> int:
    """Return the largest allocation that ran out of memory, in bytes; 0 if none did."""
    return max((a.memory for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY), default=0)


def _grown(memory: int, job: SharedGPUJob, attempts: Sequence[Attempt], limit: int) -> int:
    """Return the memory after growth for out-of-memory attempts, up to the limit."""
    refused = _refused(attempts)
    if not refused:
        return memory
    percent = 100 + job.spec.retry.out_of_memory.growth_percent
    # If an attempt was ended because it exceeded its allocation, its peak shows the need.
    taken = max(a.peak_memory or 0 for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY)
    shown = _with_margin(taken) if taken > refused else 0
    grown = max(memory, -(-refused * percent // 100), shown)
    return min(grown, limit) if limit > refused else grown


def _with_margin(peak: int) -> int:
    return -(-peak * (100 + HISTORY_MARGIN_PERCENT) // 100)


def _round_up(memory: int) -> int:
    return -(-memory // MEBI) * MEBI


def _most(job: SharedGPUJob, partition: GPUPartition, largest: Largest) -> int:
    """Return the bytes of the largest slice or GPU that a job could get; 0 if none is known."""
    known, threads = largest.memory, _threads(job, partition)
    sizes = [
        s.memory // MEBI * MEBI
        for s in partition.spec.slices
        if s.thread_percent >= threads and (not known or s.memory <= known)
    ]
    return max(sizes, default=known)


def resolve(
    job: SharedGPUJob,
    partition: GPUPartition,
    *,
    attempts: Sequence[Attempt] = (),
    profile: policy.Profile | None = None,
    largest: Largest,
    avoided: Collection[str] = (),
) -> policy.Job | Why:
    """Convert a job's spec to the numbers for policies and guard.

    Parameters
    ----------
    attempts
        Its attempts so far. Those that ran out of memory increase its request, and after GPU
        faults it may have to run alone.
    profile
        The history of its application.
    largest
        The largest capacity of a ready GPU and its node; zeros while no GPU is ready.
    avoided
        Nodes that it does not use as long as another node could run it.

    Returns
    -------
    policy.Job or Why
        The request, or why it can never be met as it is written. The reason OutOfMemory means that
        the job has already had the most memory that it can get.
    """
    spec, name = job.spec, partition.metadata.name
    exclusive = partition.spec.sharing.mode is SharingMode.EXCLUSIVE
    mps = partition.spec.sharing.mode is SharingMode.MPS
    needs = read_needs(spec.template)
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
    most = _most(job, partition, largest)
    asked = asked_memory(job, partition, peak, most)
    if asked is None:
        most = largest.memory  # it runs alone
    refused = _refused(attempts)
    if refused >= most > 0 and not largest.arriving:
        return Why(Reason.OUT_OF_MEMORY, _nothing_larger(name, refused))
    memory = _grown(asked, job, attempts, most) if asked is not None else 0
    threads = spec.thread_percent or 100
    if partition.spec.slices and asked is not None:
        fixed = _smallest_slice(partition, memory, job)
        if fixed is None:
            return Why(Reason.NEVER_FITS, _no_slice_holds(memory, job, partition))
        memory, threads = fixed.memory // MEBI * MEBI, fixed.thread_percent
    memory = _round_up(memory)
    if problem := _too_large(name, memory, spec.gpus, clients, largest):
        return Why(Reason.NEVER_FITS, problem)
    created = job.metadata.creation_timestamp
    asks = policy.Job(
        id=job.metadata.uid,
        name=job.key,
        namespace=job.metadata.namespace,
        application=spec.application or "",
        memory=memory + contexts,
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
        Devices of each GPU that its template requests.
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
    elif slots > sharing.max_jobs_per_gpu:
        problem = (
            f"{slots} containers take more than the {sharing.max_jobs_per_gpu} places "
            f"(sharing.maxJobsPerGPU) of a GPU of {name}: use fewer containers"
        )
    elif (
        not problem
        and sharing.mode is SharingMode.MPS
        and spec.gpu_memory is not None
        and _round_up(spec.gpu_memory) < spec.processes * MEBI
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


def _threads(job: SharedGPUJob, partition: GPUPartition) -> int:
    """Return the percentage of threads that a slice must have; 0 if the job sets none."""
    named = partition.spec.slice(job.spec.slice) if job.spec.slice else None
    return named.thread_percent if named else job.spec.thread_percent or 0


def _smallest_slice(partition: GPUPartition, memory: int, job: SharedGPUJob) -> Slice | None:
    """Return the job's named slice if it is large enough, or the smallest slice that is."""
    named = partition.spec.slice(job.spec.slice) if job.spec.slice else None
    if named is not None and named.memory >= memory:
        return named
    threads = _threads(job, partition)
    holding = [
        s for s in partition.spec.slices if s.memory >= memory and s.thread_percent >= threads
    ]
    return min(holding, key=lambda s: (s.memory, s.thread_percent, s.name), default=None)


def _no_slice_holds(memory: int, job: SharedGPUJob, partition: GPUPartition) -> str:
    there = ", ".join(
        f"{s.name} ({gib(s.memory)}, {s.thread_percent} %)" for s in partition.spec.slices
    )
    threads = _threads(job, partition)
    asked = f"{gib(memory)} and {threads} % of the threads" if threads else gib(memory)
    return f"no slice of {partition.metadata.name} holds {asked}: it has {there}"
