"""Fills a cluster with tasks of a trace until no more fit: what share of its GPUs is allocated.

After the main experiment of the FGD paper (Q. Weng et al., "Beware of Fragmentation", USENIX ATC
2023, section 6.2) and its simulator, hkust-adsl/kubernetes-scheduler-simulator: the tasks of the
trace arrive in random order, followed by others drawn from them at random, until the GPUs asked
for are 130 % of the cluster's; none ever ends (`SortClusterPods`, `TunePodsByNodeTotalResource`
in `pkg/simulator/simulator.go`). A task needs GPUs, and CPU and memory of their node.

Departures from that simulator:

- Tasks arrive some at a time, and wait; there each is tried once, on its arrival. No task ends,
  so that one without room now will have none later either.
- A task without a GPU is a job of no GPU memory on one GPU: so the policy chooses its node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter

from partita_policies.capacity import FreeCapacity
from partita_policies.types import Job, Objective, Placement, Policy, RunningJob, Snapshot
from partita_research.simulator.openb import GPU_MEMORY, TraceNode, TraceTask, cluster_of, job_of

__all__ = ["Saturation", "arrivals", "saturate"]

_WHOLE = 1000


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
    random = Random(f"saturation {seed}")
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
    policy: Policy,
    nodes: Sequence[TraceNode],
    order: Sequence[TraceTask],
    batch: int = 512,
    objective: Objective = Objective.PACKING,
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
    objective
        Of the partition.
    """
    cluster = _Filling(nodes, objective)
    waiting: list[Job] = []
    left_out: Counter[int] = Counter()
    asked = at_capacity = 0
    for start in range(0, len(order), batch):
        new = order[start : start + batch]
        waiting += [job_of(task, f"{start + n}") for n, task in enumerate(new)]
        left_out.update(_gpus_of(job) for job in cluster.decide(policy, waiting))
        asked += sum(task.milli_in_all for task in new)
        if asked <= _WHOLE * len(cluster.gpus):
            at_capacity = cluster.allocated
    before = len(waiting) + 1
    while len(waiting) < before:  # a policy may place some of what it sees at a time
        before = len(waiting)
        left_out.update(_gpus_of(job) for job in cluster.decide(policy, waiting))
    left_out.update(_gpus_of(job) for job in waiting)
    percent = 100 / (GPU_MEMORY * len(cluster.gpus))
    return Saturation(
        allocated=cluster.allocated * percent,
        at_capacity=at_capacity * percent,
        tasks=len(order),
        left_out=dict(+left_out),
        seconds=cluster.seconds,
    )


class _Filling:
    """The cluster as it fills."""

    def __init__(self, nodes: Sequence[TraceNode], objective: Objective) -> None:
        self._objective = objective
        gpus, hosts = cluster_of(nodes)
        self.gpus = {gpu.id: gpu for gpu in gpus}
        self.allocated = 0
        """Bytes."""
        self.seconds = 0.0
        self._capacity = FreeCapacity(gpus, hosts)
        self._hosts = hosts

    def decide(self, policy: Policy, waiting: list[Job]) -> list[Job]:
        """Let a policy place jobs; those that it placed, and those without hope, wait no more.

        Returns
        -------
        list of Job
            Those that now fit nowhere.
        """
        gpus = tuple(self.gpus.values())
        snapshot = Snapshot(
            "openb", 0.0, tuple(waiting), gpus, nodes=self._hosts, objective=self._objective
        )
        start = perf_counter()
        placements = policy.decide(snapshot)
        self.seconds += perf_counter() - start
        jobs = {job.id: job for job in waiting}
        for placement in placements:
            self._allocate(jobs.pop(placement.job), placement)
        hopeless = [job for job in jobs.values() if self._capacity.first_fit(job) is None]
        for job in hopeless:
            del jobs[job.id]
        waiting[:] = jobs.values()
        return hopeless

    def _allocate(self, job: Job, placement: Placement) -> None:
        self._capacity.take(job, placement.gpus)
        running_job = RunningJob(job.id, job.memory, cpu=job.cpu, host_memory=job.host_memory)
        for gpu_id in placement.gpus:
            gpu = self.gpus[gpu_id]
            self.gpus[gpu_id] = replace(gpu, running=(*gpu.running, running_job))
            self.allocated += job.memory


def _gpus_of(job: Job) -> int:
    return job.gpus if job.memory else 0
