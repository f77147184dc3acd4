"""When and where lasting jobs start: before the policy is asked, which never decides on them.

They start in queue order: before the other jobs of their priority, but not before a job of a higher
priority that fits now.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from partita.scheduling.guard import Guard
from partita.scheduling.reservations import fit_among
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import best_gpu
from partita_policies.types import GPU, Job, Sharing

__all__ = ["LastingTurns", "fit_now", "turns_of"]


class LastingTurns(NamedTuple):
    """The lasting jobs of a cycle, in queue order."""

    before: list[Job]
    """Those to place before the policy is asked."""
    after: list[Job]
    """Those that could start now, but are behind a job of a higher priority that fits now."""


def turns_of(
    order: Sequence[Job],
    guard: Guard,
    gpus: Collection[GPU],
    sharing: Sharing,
    *,
    served: Collection[str],
) -> LastingTurns:
    """Divide the lasting jobs by their place in the queue.

    Parameters
    ----------
    order
        The waiting jobs in queue order.
    gpus
        GPUs that are not held for other jobs.
    served
        Jobs that are placed already, or for which GPUs are held.
    """
    turns, capacity = LastingTurns([], []), guard.capacity
    left = [job for job in order if job.id not in served]
    lasting = [place for place, job in enumerate(left) if job.lasting]
    first = next(
        # The fast look at all GPUs comes first; it includes held GPUs.
        (
            place
            for place, job in enumerate(left[: lasting[-1]] if lasting else ())
            if not job.lasting and capacity.first_fit(job) and fit_among(job, capacity, gpus)
        ),
        len(left),
    )
    for place in lasting:
        job = left[place]
        if place < first:
            turns.before.append(job)
            continue
        there = fit_now(job, capacity, gpus, sharing)
        if there is not None and not guard.refusal(job.id, there):
            turns.after.append(job)
    return turns


def fit_now(
    job: Job, capacity: FreeCapacity, gpus: Iterable[GPU], sharing: Sharing
) -> tuple[str, ...] | None:
    """Return GPUs among these on which a job fits now; a lasting job gets the best one.

    Several GPUs are in a partition where no job is slowed down by others.
    """
    if not job.lasting or job.gpus > 1:
        return fit_among(job, capacity, gpus)
    best = best_gpu(job, capacity, gpus, sharing)
    return None if best is None else (best,)
