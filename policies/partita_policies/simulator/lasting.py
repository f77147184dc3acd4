"""When lasting jobs start in a simulation."""

from collections.abc import Iterable, Sequence

from partita_policies.amounts import amounts_of, capacity_of, held_by, total_of
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import SERVICES_PERCENT, best_gpu
from partita_policies.types import GPU, Job, Sharing

__all__ = ["place_lasting"]


def place_lasting(
    waiting: Iterable[Job],
    gpus: Sequence[GPU],
    capacity: FreeCapacity,
    sharing: Sharing,
) -> list[tuple[Job, tuple[str, ...]]]:
    """Take GPUs for the lasting jobs that can start, within their limit, as the operator does.

    Parameters
    ----------
    gpus
        The GPUs with their running jobs.
    capacity
        The free capacity. It is updated.
    """
    limit, held = capacity_of(gpus).percent(SERVICES_PERCENT), held_by(gpus, lasting=True)
    placed = []
    for job in waiting:
        gpu_ids = _gpus_for(job, gpus, capacity, sharing)
        after = held.plus(total_of(amounts_of(job, capacity[gpu_id].gpu) for gpu_id in gpu_ids))
        if gpu_ids and not after.exceeded(limit):
            held = after
            capacity.take(job, gpu_ids)
            placed.append((job, gpu_ids))
    return placed


def _gpus_for(
    job: Job, gpus: Sequence[GPU], capacity: FreeCapacity, sharing: Sharing
) -> tuple[str, ...]:
    if job.gpus > 1:
        return capacity.first_fit(job) or ()
    best = best_gpu(job, capacity, gpus, sharing)
    return () if best is None else (best,)
