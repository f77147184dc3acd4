"""Lasting jobs in a simulation: when they start, their constant load, and a share of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from partita_policies.amounts import amounts_of, capacity_of, held_by
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import best_gpu
from partita_policies.types import GPU, Job, Sharing, Step
from partita_research.simulator.tasks import Application, Task

__all__ = ["mean_step", "place_lasting", "with_services"]


def place_lasting(
    waiting: Iterable[Job],
    gpus: Sequence[GPU],
    capacity: FreeCapacity,
    *,
    sharing: Sharing,
    percent: int,
) -> list[tuple[Job, str]]:
    """Take GPUs for the lasting jobs that can start, within their limit.

    Parameters
    ----------
    gpus
        The GPUs with their running jobs.
    capacity
        The free capacity. It is updated.
    percent
        Most that lasting jobs may have together, in percent of each resource of all GPUs.
    """
    limit, held = capacity_of(gpus).percent(percent), held_by(gpus, lasting=True)
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


def mean_step(application: Application) -> Step:
    """Return the mean use of an application, with the peak of its memory."""
    steps = application.steps
    return Step(
        gpu=sum(step.gpu for step in steps) / len(steps),
        memory=application.peak_memory,
        core=sum(step.core for step in steps) / len(steps),
        pcie=sum(step.pcie for step in steps) / len(steps),
    )


def with_services(tasks: Sequence[Task], share: float, seed: int) -> list[Task]:
    """Return a workload in which a share of the jobs, on one GPU each, never ends.

    Parameters
    ----------
    share
        Share of the jobs that become lasting, 0 to 1.
    seed
        The same seed gives the same choice.
    """
    able = [task.job.id for task in tasks if task.job.gpus == 1]
    count = min(round(share * len(tasks)), len(able))
    random = Random(f"services {seed}")  # noqa: S311 - repeatable, not secret
    chosen = set(random.sample(able, count))
    return [
        replace(task, job=replace(task.job, lasting=True)) if task.job.id in chosen else task
        for task in tasks
    ]
