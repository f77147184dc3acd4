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

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from partita_policies.capacity import FreeCapacity
from partita_policies.types import Job, Objective, Policy, RunningJob, Snapshot
from partita_research.simulator.openb import GPU_MEMORY, TraceNode, TraceTask, cluster_of, job_of

__all__ = ["arrivals", "saturate"]

_WHOLE = 1000
_RATIO = 1.3
_BATCH = 512
"""How many tasks arrive at a time."""


def arrivals(tasks: Sequence[TraceTask], nodes: Sequence[TraceNode], seed: int) -> list[TraceTask]:
    """Return tasks in the order of their arrival; at least one of the trace asks for a GPU."""
    random = Random(f"saturation {seed}")
    wanted = _RATIO * _WHOLE * sum(node.gpus for node in nodes)
    order = random.sample(tasks, len(tasks))
    asked = sum(task.milli_in_all for task in order)
    while asked > wanted:
        asked -= order.pop().milli_in_all
    while asked + (task := random.choice(tasks)).milli_in_all <= wanted:
        asked += task.milli_in_all
        order.append(task)
    return order


def saturate(
    policy: Policy, nodes: Sequence[TraceNode], order: Sequence[TraceTask], objective: Objective
) -> float:
    """Let a policy place tasks as they arrive; return the percent of the GPUs that is allocated."""
    cluster = _Filling(nodes, objective)
    waiting: list[Job] = []
    for start in range(0, len(order), _BATCH):
        new = order[start : start + _BATCH]
        waiting += [job_of(task, f"{start + n}") for n, task in enumerate(new)]
        cluster.decide(policy, waiting)
    before = len(waiting) + 1
    while len(waiting) < before:  # a policy may place some of what it sees at a time
        before = len(waiting)
        cluster.decide(policy, waiting)
    return 100 * cluster.allocated / (GPU_MEMORY * len(cluster.gpus))


class _Filling:
    """The cluster as it fills; `allocated` bytes are."""

    def __init__(self, nodes: Sequence[TraceNode], objective: Objective) -> None:
        self._objective = objective
        gpus, self._hosts = cluster_of(nodes)
        self.gpus = {gpu.id: gpu for gpu in gpus}
        self.allocated = 0
        self._capacity = FreeCapacity(gpus, self._hosts)

    def decide(self, policy: Policy, waiting: list[Job]) -> None:
        """Let a policy place jobs; those that it placed, and those without hope, wait no more."""
        gpus = tuple(self.gpus.values())
        snapshot = Snapshot(
            "openb", 0.0, tuple(waiting), gpus, nodes=self._hosts, objective=self._objective
        )
        jobs = {job.id: job for job in waiting}
        for placement in policy.decide(snapshot):
            job = jobs.pop(placement.job)
            self._capacity.take(job, placement.gpus)
            there = RunningJob(job.id, job.memory, cpu=job.cpu, host_memory=job.host_memory)
            for name in placement.gpus:
                gpu = self.gpus[name]
                self.gpus[name] = replace(gpu, running=(*gpu.running, there))
                self.allocated += job.memory
        waiting[:] = [job for job in jobs.values() if self._capacity.first_fit(job) is not None]
