"""Lasting jobs in a simulation: when they start, and their constant load."""

from collections.abc import Iterable, Sequence

from partita_policies.amounts import amounts_of, capacity_of, held_by
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import SERVICES_PERCENT, best_gpu
from partita_policies.simulator.tasks import Application
from partita_policies.types import GPU, Job, Profile, Sharing, Step

__all__ = ["mean_step", "place_lasting"]


def place_lasting(
    waiting: Iterable[Job],
    gpus: Sequence[GPU],
    capacity: FreeCapacity,
    sharing: Sharing,
) -> list[tuple[Job, str]]:
    """Take GPUs for the lasting jobs that can start, within their limit.

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
        gpu_id = best_gpu(job, capacity, gpus, sharing)
        if gpu_id is None:
            continue
        after = held.plus(amounts_of(job, capacity[gpu_id].gpu))
        if not after.exceeded(limit):
            held = after
            capacity.take(job, (gpu_id,))
            placed.append((job, gpu_id))
    return placed


def mean_step(application: Application | Profile) -> Step:
    """Return the mean use of an application, with the peak of its memory."""
    steps = application.steps
    return Step(
        gpu=sum(step.gpu for step in steps) / len(steps),
        memory=application.peak_memory,
        core=sum(step.core for step in steps) / len(steps),
        pcie=sum(step.pcie for step in steps) / len(steps),
    )
