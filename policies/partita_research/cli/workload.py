"""Jobs and GPUs of a simulation: by name, from a file, or drawn."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from partita_research.simulator.products import gpus_of
from partita_research.simulator.services import with_services
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import (
    STUDY_WORKLOADS,
    InputError,
    Workload,
    read_workload,
    study_workload,
)

__all__ = ["Batch", "SimulatedGPUs", "load", "place_asked", "place_in"]

SYNTHETIC = "synthetic"
SYNTHETIC_JOBS = 100
_PRODUCTS_NAMED = 3
_EQUAL: Mapping[str, float] = {}
REFERENCE = "titan-xp"
"""Default GPU of synthetic jobs: that of the DqnGPU study."""


@dataclass(frozen=True, slots=True)
class SimulatedGPUs:
    """GPUs and nodes of a simulation."""

    gpus: Sequence[GPU]
    nodes: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of a simulation."""

    name: str
    tasks: Sequence[Task]
    place: SimulatedGPUs
    sharing: Sharing
    speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Description in one line."""
        products = Counter(gpu.product or "GPU" for gpu in self.place.gpus)
        gpus = ", ".join(f"{count} x {product}" for product, count in products.items())
        if len(products) > _PRODUCTS_NAMED:
            gpus = f"{products.total():,} GPUs of {len(products)} products"
        return f"{self.name}: {len(self.tasks):,} jobs on {gpus}, {self.sharing}"


def load(
    workload: str,
    *,
    place: SimulatedGPUs | None,
    sharing: Sharing,
    jobs: int | None,
    seed: int,
    noise: float,
    services: float,
) -> Batch:
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
        place = place or SimulatedGPUs(gpus_of(REFERENCE, 1, max_jobs=16, per_node=1))
        tasks: Sequence[Task] = random_tasks(
            seed, jobs or SYNTHETIC_JOBS, place.gpus[0], noise=noise
        )
        return Batch(workload, with_services(tasks, services, seed), place, sharing)
    try:
        if workload.lower().endswith(".csv"):
            name, tasks, speeds = Path(workload).stem, _trace(Path(workload)), _EQUAL
            if place is None:
                raise UserError(
                    f"{workload} says nothing of GPUs: name its list of nodes with --gpus, or "
                    "write GPUs with --gpu"
                )
        else:
            found = _workload(workload)
            name, tasks, speeds = found.name, found.tasks, found.speeds
            place = place or SimulatedGPUs(found.gpus)
    except (InputError, TraceError) as error:
        raise UserError(str(error)) from error
    tasks = tasks[:jobs]
    if noise:
        tasks = jitter(tasks, seed, noise, largest=max(gpu.memory for gpu in place.gpus))
    return Batch(name, with_services(tasks, services, seed), place, sharing, speeds)


def place_in(path: Path) -> SimulatedGPUs:
    """Return the GPUs of a list of nodes or of a workload file.

    Raises
    ------
    UserError
        The file cannot be read, or has no GPUs.
    """
    try:
        if path.suffix.lower() != ".csv":
            return SimulatedGPUs(read_workload(path).gpus)
        place = SimulatedGPUs(*cluster_of(read_nodes(path)))
    except (InputError, TraceError) as error:
        raise UserError(str(error)) from error
    if not place.gpus:
        raise UserError(f"{path} has no node with a GPU: name another list of nodes")
    return place


def place_asked(asked: Sequence[Sequence[GPU]]) -> SimulatedGPUs:
    """Return the GPUs of several options, each on nodes of its own."""
    every = [(number, gpu) for number, group in enumerate(asked) for gpu in group]
    return SimulatedGPUs(
        [
            replace(gpu, id=f"gpu-{n}", node=f"{gpu.node}-{number}")
            for n, (number, gpu) in enumerate(every)
        ]
    )


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
