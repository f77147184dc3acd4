"""Jobs and GPUs of a simulation: by name, from a file, or drawn."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from partita.cli.terminal import UserError, warn
from partita_policies.types import GPU, Node, Sharing
from partita_research.simulator import Task
from partita_research.simulator.jitter import jitter
from partita_research.simulator.openb import (
    TraceError,
    cluster_of,
    read_nodes,
    read_tasks,
    simulated,
)
from partita_research.simulator.products import MAX_JOBS, gpus_of
from partita_research.simulator.services import with_services
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import (
    STUDY_WORKLOADS,
    InputError,
    Workload,
    read_workload,
    study_workload,
)

__all__ = ["Place", "load", "place_asked", "place_in"]

SYNTHETIC = "synthetic"
SYNTHETIC_JOBS = 100
REFERENCE = "titan-xp"
"""Default GPU of synthetic jobs: that of the DqnGPU study."""


Place = tuple[Sequence[GPU], Sequence[Node]]
"""GPUs, and CPU and memory of nodes."""


def load(
    workload: str,
    *,
    place: Place | None,
    sharing: Sharing,
    jobs: int | None,
    seed: int,
    noise: float,
    services: float,
) -> Workload:
    """Read or draw a workload.

    Parameters
    ----------
    place
        GPUs to run on; None for those of the workload.
    jobs
        Number of jobs; None for all.
    services
        Share of the jobs that never end.

    Raises
    ------
    UserError
        The workload does not exist, cannot be read or has no jobs, or there are no GPUs.
    """
    if workload == SYNTHETIC:
        gpus, nodes = place or (gpus_of(REFERENCE, 1, max_jobs=MAX_JOBS, per_node=1), ())
        tasks: Sequence[Task] = random_tasks(seed, jobs or SYNTHETIC_JOBS, gpus[0], noise=noise)
        tasks = with_services(tasks, services, seed)
        return Workload(workload, tasks, gpus, {}, nodes, sharing)
    try:
        if workload.lower().endswith(".csv"):
            found = Workload(Path(workload).stem, _trace(Path(workload)), (), {})
            if place is None:
                raise UserError(
                    f"{workload} says nothing of GPUs: name its list of nodes with --gpus, or "
                    "write GPUs with --gpu"
                )
        else:
            found = _workload(workload)
    except (InputError, TraceError) as error:
        raise UserError(str(error)) from error
    gpus, nodes = place or (found.gpus, ())
    tasks = found.tasks[:jobs]
    if noise:
        tasks = jitter(tasks, seed, noise, largest=max(gpu.memory for gpu in gpus))
    tasks = with_services(tasks, services, seed)
    return replace(found, tasks=tasks, gpus=gpus, nodes=nodes, sharing=sharing)


def place_in(path: Path) -> Place:
    """Return the GPUs of a list of nodes or of a workload file.

    Raises
    ------
    UserError
        The file cannot be read, or has no GPUs.
    """
    try:
        if path.suffix.lower() != ".csv":
            return read_workload(path).gpus, ()
        gpus, nodes = cluster_of(read_nodes(path))
    except (InputError, TraceError) as error:
        raise UserError(str(error)) from error
    if not gpus:
        raise UserError(f"{path} has no node with a GPU: name another list of nodes")
    return gpus, nodes


def place_asked(asked: Sequence[Sequence[GPU]]) -> Place:
    """Return the GPUs of several options, each on nodes of its own."""
    every = [(number, gpu) for number, group in enumerate(asked) for gpu in group]
    found = [
        replace(gpu, id=f"gpu-{n}", node=f"{gpu.node}-{number}")
        for n, (number, gpu) in enumerate(every)
    ]
    return found, ()


def _workload(name: str) -> Workload:
    if name in STUDY_WORKLOADS:
        return study_workload(name)
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UserError(
            f"there is no workload {name!r}: name a file, or one of "
            f"{', '.join((*STUDY_WORKLOADS, SYNTHETIC))}"
        )
    return read_workload(path)


def _trace(path: Path) -> list[Task]:
    """Return the tasks of a trace with a GPU and a duration, at their arrival times."""
    found = read_tasks(path)
    known = [task for task in found if task.gpus and task.duration is not None]
    if not known:
        raise UserError(
            f"{path}: none of its {len(found)} tasks has a GPU and both a creation_time and a "
            "deletion_time: a simulation over time needs them"
        )
    if len(known) < len(found):
        warn(f"{len(found) - len(known):,} of {len(found):,} tasks have no GPU, or no times")
    first = min(task.created or 0.0 for task in known)
    return [simulated(task, task.name, (task.created or 0.0) - first) for task in known]
