"""What a job asks for, in numbers: slices, history, growth after out-of-memory resolved."""

from collections.abc import Sequence
from dataclasses import dataclass

from partita.models import Attempt, GPUPartition, Outcome, SharedGPUJob, SharingMode
from partita.models.base import MEBI
from partita.models.partition import Slice
from partita.models.profile import ApplicationProfile, Measurement
from partita.pods.job import device_slots
from partita.pods.template import template_problems
from partita.scheduling.reasons import Reason, Why, gib
from partita_policies import types as policy

__all__ = ["HISTORY_MARGIN_PERCENT", "Largest", "asked_memory", "bookable", "resolve", "to_profile"]

HISTORY_MARGIN_PERCENT = 10
"""Added to the peak of the history when a job names no memory. An assumption: runs differ."""


def bookable(total: int, partition: GPUPartition) -> int:
    """Bytes of a GPU that may be booked: its memory less the partition's reserve, whole MiB."""
    share = total * (100 - partition.spec.sharing.memory_reserve_percent) // 100
    return share // MEBI * MEBI


@dataclass(frozen=True, slots=True)
class Largest:
    """The most that any ready GPU, or node, of a partition could ever give."""

    memory: int = 0
    """Bookable bytes of the largest GPU."""
    gpus_on_node: int = 0
    """Most GPUs of the partition on one node."""


def asked_memory(job: SharedGPUJob, partition: GPUPartition, peak: int) -> int | None:
    """Bytes that the job asks for before any growth; None when nothing is known.

    Parameters
    ----------
    peak
        Peak memory in the application's history, 0 without one.
    """
    if job.spec.slice is not None:
        chosen = partition.spec.slice(job.spec.slice)
        return chosen.memory if chosen else None
    if job.spec.gpu_memory is not None:
        return job.spec.gpu_memory
    if peak:
        return peak * (100 + HISTORY_MARGIN_PERCENT) // 100
    return None


def _grown(memory: int, job: SharedGPUJob, attempts: Sequence[Attempt], limit: int) -> int:
    """Memory after the out-of-memory attempts so far; the largest GPU bounds the growth."""
    refused = [a.memory for a in attempts if a.outcome is Outcome.OUT_OF_MEMORY]
    if not refused:
        return memory
    percent = 100 + job.spec.retry.out_of_memory.growth_percent
    grown = max(memory, -(-max(refused) * percent // 100))
    return min(grown, limit) if limit > max(refused) else grown


def _round_up(memory: int, unit: int = MEBI) -> int:
    return -(-memory // unit) * unit


def to_profile(application: str, measurement: Measurement) -> policy.Profile:
    """Translate a measurement for the policies."""
    return policy.Profile(
        application=application,
        duration=measurement.duration,
        runs=measurement.runs,
        product=measurement.environment.product,
        steps=tuple(
            policy.Step(
                gpu=step.gpu_utilization,
                memory=step.gpu_memory,
                core=step.sm_occupancy or 0.0,
                pcie=step.pcie_throughput or 0,
            )
            for step in measurement.steps
        ),
    )


def resolve(
    job: SharedGPUJob,
    partition: GPUPartition,
    *,
    attempts: Sequence[Attempt] = (),
    history: ApplicationProfile | None = None,
    largest: Largest,
) -> policy.Job | Why:
    """Turn a job's spec into the numbers that policies and guard work with.

    Parameters
    ----------
    attempts
        Its attempts so far; those that ran out of memory make it grow.
    history
        What is known of its application.
    largest
        What a ready GPU could give at most; zeros while none is ready.

    Returns
    -------
    policy.Job or Why
        The request, or why it can never be met as it is written.
    """
    spec, name = job.spec, partition.metadata.name
    exclusive = partition.spec.sharing.mode is SharingMode.EXCLUSIVE
    mps = partition.spec.sharing.mode is SharingMode.MPS
    if spec.gpus > 1 and not exclusive:
        return _invalid(
            f"gpus: {spec.gpus} needs a partition with sharing.mode Exclusive (an MPS client "
            f"reaches one GPU), and {name} has {partition.spec.sharing.mode}: write gpus: 1 or "
            "another partition"
        )
    if spec.slice is not None and partition.spec.slice(spec.slice) is None:
        return _unknown_slice(spec.slice, partition)
    if problems := template_problems(job.spec.template):
        return _invalid("; ".join(problems))
    slots = device_slots(job.spec.template)
    if slots > partition.spec.sharing.max_jobs_per_gpu:
        return _invalid(
            f"{slots} containers take more than the {partition.spec.sharing.max_jobs_per_gpu} "
            f"places (sharing.maxJobsPerGPU) of a GPU of {name}: use fewer containers"
        )
    measurement = history.spec.measurement() if history else None
    asked = asked_memory(job, partition, measurement.peak_memory if measurement else 0)
    threads = spec.thread_percent or 100
    memory = 0
    if asked is not None:
        memory = _round_up(_grown(asked, job, attempts, largest.memory))
    if partition.spec.slices and asked is not None:
        fixed = _smallest_slice(partition, memory, threads, spec.slice)
        if fixed is None:
            return _no_slice_holds(memory, threads, partition)
        memory, threads = fixed.memory // MEBI * MEBI, fixed.thread_percent
    if largest.memory and memory > largest.memory:
        return Why(
            Reason.NEVER_FITS,
            f"needs {gib(memory)} of GPU memory, but the largest GPU of {name} has "
            f"{gib(largest.memory)} to book: ask for less, or add a larger GPU",
        )
    if largest.gpus_on_node and spec.gpus > largest.gpus_on_node:
        return Why(
            Reason.NEVER_FITS,
            f"needs {spec.gpus} GPUs on one node, but {name} has at most "
            f"{largest.gpus_on_node} on a node: ask for fewer",
        )
    duration = spec.expected_duration or (measurement.duration if measurement else None)
    created = job.metadata.creation_timestamp
    return policy.Job(
        id=job.metadata.uid,
        name=job.key,
        namespace=job.metadata.namespace,
        application=spec.application or "",
        memory=memory,
        thread_percent=threads,
        gpus=spec.gpus,
        slots=slots,
        clients=spec.processes if mps else 1,
        alone=exclusive or asked is None,
        priority=spec.priority,
        duration=duration,
        submitted=created.timestamp() if created else 0.0,
        profile=to_profile(spec.application or "", measurement) if measurement else None,
    )


def _invalid(message: str) -> Why:
    return Why(Reason.INVALID_SPEC, message)


def _unknown_slice(name: str, partition: GPUPartition) -> Why:
    there = ", ".join(s.name for s in partition.spec.slices)
    if not there:
        return _invalid(
            f"slice {name} does not exist: partition {partition.metadata.name} has no slices, "
            "write gpuMemory instead"
        )
    return _invalid(f"slice {name} does not exist: partition {partition.metadata.name} has {there}")


def _smallest_slice(
    partition: GPUPartition, memory: int, threads: int, wanted: str | None
) -> Slice | None:
    """Find the slice: the one named as long as it is large enough, else the smallest that is."""
    named = partition.spec.slice(wanted) if wanted else None
    if named is not None:
        threads = named.thread_percent
        if named.memory >= memory:
            return named
    holding = [
        s for s in partition.spec.slices if s.memory >= memory and s.thread_percent >= threads
    ]
    return min(holding, key=lambda s: (s.memory, s.thread_percent, s.name), default=None)


def _no_slice_holds(memory: int, threads: int, partition: GPUPartition) -> Why:
    there = ", ".join(
        f"{s.name} ({gib(s.memory)}, {s.thread_percent} %)" for s in partition.spec.slices
    )
    return Why(
        Reason.NEVER_FITS,
        f"no slice of {partition.metadata.name} holds {gib(memory)} and {threads} % of the "
        f"threads: it has {there}",
    )
