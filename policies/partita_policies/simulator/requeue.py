"""The request of a job that waits on: passed over, out of memory, or evicted.

The rules are those of the operator (`partita.scheduling.memory_request`).
"""

from dataclasses import fields, replace
from operator import attrgetter

from partita_policies.simulator.tasks import MIB, with_margin
from partita_policies.types import Job

__all__ = [
    "GROWTH_PERCENT",
    "UNCHANGED_RECLAIMS",
    "after_eviction",
    "after_out_of_memory",
    "bypassed",
]

GROWTH_PERCENT = 50
"""Growth of memory that was too small: the operator's default `growthPercent`."""
UNCHANGED_RECLAIMS = 2
"""Evictions after which a job is queued again with the same guarantee. With the next one its
guarantee grows to what it has used, so that it is not evicted for ever."""

_FIELDS = tuple(field.name for field in fields(Job))
_VALUES, _BYPASSES = attrgetter(*_FIELDS), _FIELDS.index("bypasses")


def bypassed(job: Job) -> Job:
    """Return a job that was passed over once more."""
    values = list(_VALUES(job))  # `replace` takes three times as long
    values[_BYPASSES] += 1
    return Job(*values)


def after_out_of_memory(job: Job, had: int, most: int) -> Job | None:
    """Return the request of a job that ran out of memory; None if there is nothing larger.

    Its ceiling grows. Its guarantee grows if it has no ceiling above it, or if the ceiling is
    already the largest possible.

    Parameters
    ----------
    had
        Bytes that were allocated.
    most
        Bytes of the largest GPU that it can use.
    """
    job = replace(job, reclaimed=False)
    if job.memory < job.memory_limit < most:
        return replace(job, memory_limit=min(_grown(job.memory_limit), most))
    if had >= most:
        return None
    return replace(job, memory=min(_grown(had), most))


def after_eviction(job: Job, needed: int, reclaims: int) -> Job:
    """Return the request of a job that was evicted while it borrowed memory.

    Parameters
    ----------
    needed
        Bytes that it used or requested.
    reclaims
        How often it was evicted.
    """
    job = replace(job, reclaimed=True)
    if reclaims <= UNCHANGED_RECLAIMS:
        return job
    return replace(job, memory=max(job.memory, min(with_margin(needed), job.memory_limit)))


def _grown(memory: int) -> int:
    return max(memory * (100 + GROWTH_PERCENT) // 100, memory + MIB)
