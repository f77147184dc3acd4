"""The workloads of the benchmark, by name and seed."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from partita_policies import GPU
from partita_policies.types import Node
from partita_research.simulator import Task, jitter, task_of
from partita_research.simulator.openb import (
    TraceNode,
    TraceTask,
    cluster_of,
    draw,
    read_nodes,
    read_tasks,
)
from partita_research.simulator.synthetic import random_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS, study_applications, study_workload

__all__ = ["NOISE", "OPENB", "TRACES", "UNSEEN", "Scene", "missing_traces", "scene"]

NOISE = 0.2
"""What a measured profile may be off by, as the issue asks."""
UNSEEN = ("study-300x8", "synthetic-300x8", "openb-300x16")
"""Workloads of another size or kind than those that `dqn` was trained on."""
TRACES = Path(__file__).parents[4] / "shared" / "traces" / "openb"
"""Where the traces lie: a folder `shared` beside the checkout."""
OPENB = ("default", "gpushare40", "gpushare100", "multigpu20")
_HELD_OUT = 10**9
"""First seed of synthetic workloads that training never draws."""
_JOBS, _GPUS = 300, 8


class Scene(NamedTuple):
    """What one simulation runs on."""

    tasks: Sequence[Task]
    gpus: Sequence[GPU]
    nodes: Sequence[Node] = ()


def missing_traces() -> str:
    """Say what is not there of the traces, and where to have it; empty when all is there."""
    names = ["openb_node_list_gpu_node.csv", *(f"openb_pod_list_{name}.csv" for name in OPENB)]
    gone = [name for name in names if not (TRACES / name).exists()]
    return (
        f"{TRACES}: no {', '.join(gone)}: copy them from Alibaba's clusterdata, "
        "cluster-trace-gpu-v2023/csv"
        if gone
        else ""
    )


def scene(name: str, seed: int) -> Scene:
    """Return a workload: one of the study's, or one of `UNSEEN`.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    if name in STUDY_WORKLOADS:
        workload = study_workload(name)
        largest = workload.gpus[0].memory
        return Scene(jitter(workload.tasks, seed, NOISE, largest=largest), workload.gpus)
    card = study_workload("random").gpus[0]
    if name == "study-300x8":
        return Scene(_mix(seed, card), _several(card))
    if name == "synthetic-300x8":
        tasks = random_tasks(_HELD_OUT + seed, _JOBS, card, applications=30, noise=NOISE)
        return Scene(tasks, _several(card))
    if name == "openb-300x16":
        return _openb(seed)
    raise ValueError(f"workload {name}: expected one of {(*STUDY_WORKLOADS, *UNSEEN)}")


def _several(card: GPU) -> list[GPU]:
    return [
        GPU(
            f"gpu-{n}",
            "node",
            card.memory,
            card.max_jobs,
            card.max_clients,
            card.product,
            card.sm_count,
            card.pcie_bandwidth,
        )
        for n in range(_GPUS)
    ]


def _mix(seed: int, card: GPU) -> list[Task]:
    """Draw of the study's applications, each as likely as the others."""
    random = Random(f"mix {seed}")
    known = list(study_applications().values())
    tasks = [
        task_of(random.choice(known), f"job-{n:05d}", largest=card.memory) for n in range(_JOBS)
    ]
    return jitter(tasks, seed, NOISE, largest=card.memory)


@cache
def _trace() -> tuple[tuple[TraceNode, ...], tuple[TraceTask, ...]]:
    nodes = read_nodes(TRACES / "openb_node_list_gpu_node.csv")
    return nodes, read_tasks(TRACES / "openb_pod_list_default.csv")


def _openb(seed: int) -> Scene:
    """Draw tasks of the trace onto its first two nodes of eight GPUs, all at once."""
    nodes, tasks = _trace()
    gpus, hosts = cluster_of([node for node in nodes if node.gpus == _GPUS][:2])
    products = {gpu.product for gpu in gpus}
    fitting = [task for task in tasks if not task.products or products & set(task.products)]
    return Scene(draw(fitting, _JOBS, seed), gpus, hosts)
