"""Workloads in which a share of the jobs never ends."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from partita_policies.simulator.tasks import Task

__all__ = ["with_services"]


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
