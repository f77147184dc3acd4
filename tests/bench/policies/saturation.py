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
        left_out[0] += sum(not cluster.take_host(task) for task in new if not task.gpus)
        waiting += [job_of(task, f"{start + n}") for n, task in enumerate(new) if task.gpus]
        hopeless = cluster.decide(policy, waiting)
        left_out.update(job.gpus for job in hopeless)
        asked += sum(task.milli_in_all for task in new)
        if asked <= _WHOLE * len(cluster.gpus):
            at_capacity = cluster.allocated
    before = len(waiting) + 1
    while len(waiting) < before:  # a policy may place some of what it sees at a time
        before = len(waiting)
        left_out.update(job.gpus for job in cluster.decide(policy, waiting))
    left_out.update(job.gpus for job in waiting)
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
        self._count = {node.name: node.gpus for node in nodes}
        self._hosts = {host.id: host for host in hosts}
        """What the tasks without a GPU leave of the nodes."""
        self._left = {host.id: (host.cpu, host.memory) for host in hosts}
        """What all tasks leave of them."""

    def take_host(self, task: TraceTask) -> bool:
        """Find a node for a task without a GPU; say whether there was one."""
        fitting = [
            (cpu / self._count[name], name)
            for name, (cpu, memory) in self._left.items()
            if task.cpu <= cpu and task.memory <= memory
        ]
        if not fitting:
            return False
        _, name = max(fitting)
        host = self._hosts[name]
        less = replace(host, cpu=host.cpu - task.cpu, memory=host.memory - task.memory)
        self._hosts[name] = less
        self._take(name, task.cpu, task.memory)
        if self._capacity.hosts is not None:
            self._capacity.hosts.take(name, job_of(task, task.name))
        return True

    def decide(self, policy: Policy, waiting: list[Job]) -> list[Job]:
        """Let a policy place jobs; those that it placed, and those without hope, wait no more.

        Returns
        -------
        list of Job
            Those that now fit nowhere.
        """
        gpus, hosts = tuple(self.gpus.values()), tuple(self._hosts.values())
        snapshot = Snapshot(
            "openb", 0.0, tuple(waiting), gpus, nodes=hosts, objective=self._objective
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
        self._take(gpu.node, job.cpu, job.host_memory)

    def _take(self, node: str, cpu: int, memory: int) -> None:
        left = self._left[node]
        self._left[node] = (left[0] - cpu, left[1] - memory)
