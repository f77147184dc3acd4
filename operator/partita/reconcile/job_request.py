"""What a job asks for, in numbers: slices, history, growth after out-of-memory resolved."""

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
"""Added to a peak that was measured, when a job names no memory or was above its allocation. An
assumption: runs differ."""


def allocatable(total: int, partition: GPUPartition) -> int:
    """Bytes of a GPU that may be allocated: its memory less the partition's reserve, whole MiB."""
    share = total * (100 - partition.spec.sharing.memory_reserve_percent) // 100
    return share // MEBI * MEBI


def asked_memory(
    job: SharedGPUJob, partition: GPUPartition, peak: int, limit: int = 0
) -> int | None:
    """Bytes that the job asks for before any growth; None when nothing is known.

    Parameters
    ----------
    peak
        Peak memory in the application's history, 0 without one.
    limit
        The most that it could get; 0 when that is not known.
    """
    if job.spec.slice is not None:
        chosen = partition.spec.slice(job.spec.slice)
        return chosen.memory if chosen else None
    if job.spec.gpu_memory is not None:
        return job.spec.gpu_memory
    if peak:
        with_margin = _with_margin(peak)
        # What ran before must not be kept waiting by the margin.
        return min(with_margin, limit) if limit >= peak else with_margin
    return None


def _refused(attempts: Sequence[Attempt]) -> int:
    """Return the most memory that was not enough, bytes; 0 when none ran out of it."""
    return max((a.memory for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY), default=0)


def _grown(memory: int, job: SharedGPUJob, attempts: Sequence[Attempt], limit: int) -> int:
    """Memory after the out-of-memory attempts so far; the most there is bounds the growth."""
    refused = _refused(attempts)
    if not refused:
        return memory
    percent = 100 + job.spec.retry.out_of_memory.growth_percent
    # One that was above its allocation, and ended for it, has shown how much it needs.
    taken = max(a.peak_memory or 0 for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY)
    shown = _with_margin(taken) if taken > refused else 0
    grown = max(memory, -(-refused * percent // 100), shown)
    return min(grown, limit) if limit > refused else grown


def _with_margin(peak: int) -> int:
    return -(-peak * (100 + HISTORY_MARGIN_PERCENT) // 100)


def _round_up(memory: int) -> int:
    return -(-memory // MEBI) * MEBI


def _most(job: SharedGPUJob, partition: GPUPartition, largest: Largest) -> int:
    """Bytes of the largest slice or GPU that a job could get; 0 when no GPU is known yet."""
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
    """Turn a job's spec into the numbers that policies and guard work with.

    Parameters
    ----------
    attempts
        Its attempts so far; those that ran out of memory make it grow, and those that ended with
        a GPU fault may have it run alone.
    profile
        What is known of its application.
    largest
        What a ready GPU could give at most, and its node; zeros while none is ready.
    avoided
        Nodes that it does not use as long as another one could run it.

    Returns
    -------
    policy.Job or Why
        The request, or why it can never be met as it is written. With the reason OutOfMemory
        the job has had all that there is.
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
    largest = found.largest
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
    clients = spec.processes if mps else 1
    if problem := _too_large(name, memory, spec.gpus, clients, largest):
        return Why(Reason.NEVER_FITS, problem)
    created = job.metadata.creation_timestamp
    asks = policy.Job(
        id=job.metadata.uid,
        name=job.key,
        namespace=job.metadata.namespace,
        application=spec.application or "",
        memory=memory,
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
    """Tell whether the history of its application decides how much memory a job gets."""
    return job.spec.slice is None and job.spec.gpu_memory is None


def with_profile(
    request: policy.Job, job: SharedGPUJob, profile: policy.Profile | None
) -> policy.Job:
    """Return the request of a job that names its memory, with what is now known of its application.

    It is what `resolve` would return, at a fraction of its cost: of such a request only profile and
    duration depend on the history.
    """
    return replace(request, profile=profile, duration=_duration(job, profile))


def _duration(job: SharedGPUJob, profile: policy.Profile | None) -> float | None:
    return job.spec.expected_duration or (profile.duration if profile else None)


def _problem(
    job: SharedGPUJob, partition: GPUPartition, problems: Sequence[str], slots: int
) -> str:
    """Say what no GPU of the partition could ever meet, however large; empty when nothing.

    Parameters
    ----------
    problems
        What is wrong with its template.
    slots
        Devices of each GPU that its template takes.
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
    """Say what is the most there is where a job asks for more; empty where it does not."""
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
    """Percent of the threads that a slice must have: a job that says nothing takes any."""
    named = partition.spec.slice(job.spec.slice) if job.spec.slice else None
    return named.thread_percent if named else job.spec.thread_percent or 0


def _smallest_slice(partition: GPUPartition, memory: int, job: SharedGPUJob) -> Slice | None:
    """Find the slice: the one named as long as it is large enough, else the smallest that is."""
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
