"""The GPU memory that a job requests: its guarantee and its ceiling, and how both grow.

The guarantee is allocated. Between guarantee and ceiling a job borrows memory that no other job
needs, in a partition with `sharing.burst: Spare`. In other partitions both are equal.

- After an attempt that ran out of memory, the amount that limited it grows: its ceiling, or its
  guarantee if it had no ceiling above that. If its ceiling was already the largest possible, its
  guarantee grows, because the GPU may have been full.
- A job whose borrowed memory was reclaimed more than `UNCHANGED_RECLAIMS` times gets a larger
  guarantee each time, up to its ceiling and the quota of its namespace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita.models import Attempt, GPUPartition, Outcome, SharingMode
from partita.models.partition import Slice
from partita.models.quantities import MEBI
from partita.models.retry import OutOfMemoryRetry
from partita.models.sharing import Burst
from partita.scheduling.reasons import gib
from partita.scheduling.request import Request

__all__ = [
    "HISTORY_MARGIN_PERCENT",
    "UNCHANGED_RECLAIMS",
    "MemoryRequest",
    "asked_request",
    "fitting_slice",
    "grown_request",
    "largest_request",
    "no_slice_holds",
    "refused_guarantee",
    "slice_request",
    "with_margin",
]

HISTORY_MARGIN_PERCENT: Final = 10
"""Added to a measured peak if a job requests no memory amount or exceeded its allocation. An
assumption: runs differ."""
UNCHANGED_RECLAIMS: Final = 2
"""Times that a job whose borrowed memory was reclaimed is queued again with the same guarantee. An
assumption: its GPU may lack spare memory by chance, but not again and again."""


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """GPU memory on each GPU of a job, in bytes; 0 if unknown."""

    guarantee: int
    ceiling: int

    @property
    def borrows(self) -> bool:
        """Whether the ceiling is above the guarantee."""
        return self.ceiling > self.guarantee

    def in_mebibytes(self) -> "MemoryRequest":
        """Return the amounts rounded up to whole MiB."""
        return MemoryRequest(-(-self.guarantee // MEBI) * MEBI, -(-self.ceiling // MEBI) * MEBI)


def largest_request(request: Request, partition: GPUPartition, largest: int) -> MemoryRequest:
    """Return the most memory that a request could get, by slices or by the largest GPU.

    Parameters
    ----------
    largest
        Allocatable bytes of the largest GPU; 0 if unknown.
    """
    threads = _threads(request, partition)
    sizes = [
        slice_request(s, partition)
        for s in partition.spec.slices
        if s.thread_percent >= threads and (not largest or s.memory <= largest)
    ]
    ceiling = max((size.ceiling for size in sizes), default=largest)
    return MemoryRequest(
        max((size.guarantee for size in sizes), default=largest),
        min(ceiling, largest) if largest else ceiling,
    )


def slice_request(slice_: Slice, partition: GPUPartition) -> MemoryRequest:
    """Return the memory of a slice, in whole MiB."""
    memory = slice_.memory // MEBI * MEBI
    limit = slice_.memory_limit if _can_borrow(partition) else None
    return MemoryRequest(memory, max(memory, (limit or 0) // MEBI * MEBI))


def asked_request(
    request: Request, partition: GPUPartition, peak: int, most: MemoryRequest
) -> MemoryRequest | None:
    """Return the memory that is requested before any growth; None if it is unknown.

    Parameters
    ----------
    peak
        Peak memory in the application's history, in bytes; 0 without a history.
    most
        The most memory that it could get.
    """
    if request.slice:
        chosen = partition.spec.slice(request.slice)
        return slice_request(chosen, partition) if chosen else None
    if request.memory is not None:
        limit = request.memory_limit if _can_borrow(partition) else None
        if limit and most.ceiling:
            limit = min(limit, most.ceiling)
        return MemoryRequest(request.memory, max(request.memory, limit or 0))
    if peak:
        # The margin must not keep a job waiting that has run before.
        enough, largest = with_margin(peak), most.guarantee
        amount = min(enough, largest) if largest >= peak else enough
        return MemoryRequest(amount, amount)
    return None


def _can_borrow(partition: GPUPartition) -> bool:
    sharing = partition.spec.sharing
    return sharing.mode is SharingMode.MPS and sharing.burst is Burst.SPARE


def refused_guarantee(
    attempts: Sequence[Attempt], partition: GPUPartition, most: MemoryRequest
) -> int:
    """Return the largest guarantee that was too little, in bytes; 0 if none was."""
    return max((amount for amount, _ in _refusals(attempts, partition, most).guarantees), default=0)


def grown_request(
    request: Request, partition: GPUPartition, asked: MemoryRequest, most: MemoryRequest
) -> MemoryRequest:
    """Return the memory after growth because of the attempts and of what was too little before.

    Parameters
    ----------
    most
        The most memory that it could get.
    """
    attempts, percent = request.attempts, 100 + request.growth_percent
    refusals = _refusals(attempts, partition, most)
    ceiling = _grown(asked.ceiling, refusals.ceilings, percent, most.ceiling)
    guarantee = _grown(asked.guarantee, refusals.guarantees, percent, most.guarantee)
    reclaimed = [a for a in attempts if a.outcome is Outcome.RECLAIMED]
    if len(reclaimed) > UNCHANGED_RECLAIMS and _can_borrow(partition):
        quota = partition.spec.quota(request.namespace)
        bounds = (
            max(ceiling, *(a.memory_limit or 0 for a in reclaimed)),
            most.guarantee,
            (quota.memory if quota else 0) or 0,
        )
        enough = min(bound for bound in bounds if bound)
        larger = _grown(guarantee, [(a.memory, a) for a in reclaimed], percent, enough)
        guarantee = max(guarantee, min(larger, enough))
    # What limited other Pods of the application is raised until it is above what was too little.
    refused, growth = request.refused or 0, partition.spec.out_of_memory
    if guarantee < ceiling <= refused:
        ceiling = _raised(ceiling, refused, growth, most.ceiling)
    else:
        guarantee = _raised(guarantee, refused, growth, most.guarantee)
    return MemoryRequest(guarantee, max(guarantee, ceiling))


def _raised(memory: int, refused: int, growth: OutOfMemoryRetry, most: int) -> int:
    """Return the memory after steps of `growth`, up to the most that there is."""
    raised, steps = memory, 0
    while raised <= refused and steps < growth.limit:
        raised = -(-raised * (100 + growth.growth_percent) // 100)
        steps += 1
    return max(memory, min(raised, most)) if most else raised


_Refusal = tuple[int, Attempt]
"""Bytes that were too little, and the attempt that ran out of memory with them."""


@dataclass(frozen=True, slots=True)
class _Refusals:
    """Amounts with which attempts ran out of memory."""

    guarantees: list[_Refusal]
    ceilings: list[_Refusal]
    """Ceilings that can still grow."""


def _refusals(
    attempts: Sequence[Attempt], partition: GPUPartition, most: MemoryRequest
) -> _Refusals:
    found = _Refusals([], [])
    for attempt in attempts:
        if attempt.outcome is not Outcome.OUT_OF_MEMORY:
            continue
        limit = attempt.memory_limit or attempt.memory
        if not _can_borrow(partition):
            found.guarantees.append((limit, attempt))
        elif limit > attempt.memory and (limit < most.ceiling or not most.ceiling):
            found.ceilings.append((limit, attempt))
        else:
            found.guarantees.append((attempt.memory, attempt))
    return found


def _grown(memory: int, refused: Sequence[_Refusal], percent: int, most: int) -> int:
    """Return the memory after growth, up to the most that there is.

    Parameters
    ----------
    percent
        Percent of the largest of these amounts to which the memory grows.
    """
    if not refused:
        return memory
    largest = max(amount for amount, _ in refused)
    # If an attempt used more than the amount, its peak shows the need.
    taken = max(attempt.peak_memory or 0 for _, attempt in refused)
    shown = with_margin(taken) if taken > largest else 0
    grown = max(memory, -(-largest * percent // 100), shown)
    return min(grown, most) if most > largest else grown


def with_margin(peak: int) -> int:
    """Return the memory that is enough for a program of which this peak was measured."""
    return -(-peak * (100 + HISTORY_MARGIN_PERCENT) // 100)


def _threads(request: Request, partition: GPUPartition) -> int:
    """Return the percentage of threads that a slice must have; 0 if none is requested."""
    named = partition.spec.slice(request.slice)
    return named.thread_percent if named else request.threads or 0


def fitting_slice(request: Request, partition: GPUPartition, wanted: MemoryRequest) -> Slice | None:
    """Return the named slice if it is large enough, or the smallest slice that is.

    If no slice has the ceiling, a slice that has only the guarantee is large enough.
    """
    threads = _threads(request, partition)
    named = partition.spec.slice(request.slice)
    holding = [
        s
        for s in partition.spec.slices
        if s.memory >= wanted.guarantee and s.thread_percent >= threads
    ]
    high = [s for s in holding if slice_request(s, partition).ceiling >= wanted.ceiling]
    fitting = high or holding
    if named in fitting:
        return named
    return min(fitting, key=lambda s: (s.memory, s.thread_percent, s.name), default=None)


def no_slice_holds(request: Request, partition: GPUPartition, memory: int) -> str:
    """Return a message about a request that is larger than every slice."""
    there = ", ".join(
        f"{s.name} ({gib(s.memory)}, {s.thread_percent} %)" for s in partition.spec.slices
    )
    threads = _threads(request, partition)
    asked = f"{gib(memory)} and {threads} % of the threads" if threads else gib(memory)
    return f"no slice of {partition.metadata.name} holds {asked}: it has {there}"
