"""Fills a cluster with tasks of a trace until no more fit: what share of its GPUs is allocated.

After the main experiment of the FGD paper (Q. Weng et al., "Beware of Fragmentation", USENIX ATC
2023, section 6.2) and its simulator, hkust-adsl/kubernetes-scheduler-simulator: the tasks of the
trace arrive in random order, followed by others drawn from them at random, until the GPUs asked
for are 130 % of the cluster's; none ever ends (`SortClusterPods`, `TunePodsByNodeTotalResource`
in `pkg/simulator/simulator.go`). A task needs GPUs, and CPU and memory of their node.

Departures from that simulator:

- Tasks arrive some at a time, and wait; there each is tried once, on its arrival. No task ends,
  so that one without room now will have none later either.
- Tasks without a GPU are no jobs of Partita's. Under every policy alike they go to the node that
  has the most CPU left for each of its GPUs; there the policy places them too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from types import MappingProxyType

from partita_policies.room import Room
from partita_policies.simulator.openb import TraceNode, TraceTask, cluster_of, job_of
from partita_policies.types import Booking, Job, Placement, Policy, Snapshot

__all__ = ["PUBLISHED", "Saturation", "arrivals", "saturate"]

_WHOLE = 1000

PUBLISHED: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "default": {
            "Random": 87.47,
            "DotProd": 90.85,
            "GpuClustering": 91.88,
            "GpuPacking": 92.00,
            "BestFit": 93.08,
            "FGD": 95.39,
        },
        "gpushare40": {
            "Random": 86.00,
            "DotProd": 89.56,
            "GpuClustering": 90.02,
            "GpuPacking": 90.03,
            "BestFit": 91.69,
            "FGD": 94.15,
        },
        "gpushare100": {
            "Random": 79.44,
            "DotProd": 82.42,
            "GpuClustering": 82.65,
            "GpuPacking": 82.57,
            "BestFit": 85.01,
            "FGD": 86.90,
        },
        "multigpu20": {
            "Random": 88.69,
            "DotProd": 92.06,
            "GpuClustering": 93.56,
            "GpuPacking": 93.71,
            "BestFit": 93.93,
            "FGD": 95.65,
        },
    }
)
"""Percent of the GPUs allocated once 130 % were asked for, by trace and policy of the paper.

Means over its 10 seeds of column 130 of `experiments/analysis/expected_results/
analysis_allo_discrete.csv` in hkust-adsl/kubernetes-scheduler-simulator, commit 8f3d641, the
figures behind Fig. 9(a), 11 and 12 of the paper."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """How full a policy filled a cluster."""

    allocated: float
    """Percent of the GPUs' capacity, after all arrivals."""
    at_capacity: float
    """The same when as much was asked for as there is."""
    tasks: int
    """How many arrived, those without a GPU included."""
    left_out: Mapping[int, int]
    """How many found no room, by the number of GPUs that they ask for."""
    seconds: float
    """What the policy took for all its decisions."""


def arrivals(
    tasks: Sequence[TraceTask], nodes: Sequence[TraceNode], seed: int, ratio: float = 1.3
) -> list[TraceTask]:
    """Return tasks in the order of their arrival.

    Parameters
    ----------
    tasks
        Of the trace; at least one asks for a GPU.
    nodes
        The cluster that they are for.
    seed
        The same seed gives the same tasks.
    ratio
        The GPUs that they ask for in all, of those that the cluster has.
    """
    random = Random(f"saturation {seed}")  # noqa: S311 - repeatable, not secret
    wanted = ratio * _WHOLE * sum(node.gpus for node in nodes)
    order = random.sample(tasks, len(tasks))
    asked = sum(task.milli_in_all for task in order)
    while asked > wanted:
        asked -= order.pop().milli_in_all
    while asked + (task := random.choice(tasks)).milli_in_all <= wanted:
        asked += task.milli_in_all
        order.append(task)
    return order


def saturate(
    policy: Policy, nodes: Sequence[TraceNode], order: Sequence[TraceTask], batch: int = 256
) -> Saturation:
    """Let a policy place tasks as they arrive, until all have arrived.

    Parameters
    ----------
    policy
        Sees at each arrival the tasks that wait, and all GPUs and nodes.
    nodes
        The cluster, with nothing on it.
    order
        What `arrivals` returned.
    batch
        How many tasks arrive at a time.
    """
    cluster = _Filling(nodes)
    capacity = _WHOLE * sum(node.gpus for node in nodes)
    waiting: list[Job] = []
    left_out: Counter[int] = Counter()
    asked = allocated = at_capacity = 0
    seconds = 0.0
    for arrived, new in _batches(order, batch):
        left_out[0] += sum(not cluster.take_host(task) for task in new if not task.gpus)
        waiting += [job_of(t, f"{arrived + n}") for n, t in enumerate(new) if t.gpus]
        start = perf_counter()
        placements = policy.decide(cluster.snapshot(waiting))
        seconds += perf_counter() - start
        allocated += cluster.place(waiting, placements)
        waiting, hopeless = cluster.divide(waiting)
        left_out.update(job.gpus for job in hopeless)
        asked += sum(task.milli_in_all for task in new)
        if asked <= capacity:
            at_capacity = allocated
    left_out.update(job.gpus for job in waiting)
    return Saturation(
        allocated=100 * allocated / capacity,
        at_capacity=100 * at_capacity / capacity,
        tasks=len(order),
        left_out=dict(+left_out),
        seconds=seconds,
    )


def _batches(order: Sequence[TraceTask], batch: int) -> Iterator[tuple[int, Sequence[TraceTask]]]:
    for start in range(0, len(order), batch):
        yield start, order[start : start + batch]
