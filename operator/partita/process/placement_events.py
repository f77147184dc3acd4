"""Tells where jobs and claims were placed: in the log, and by Events."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from partita.jobs.job_allocation import unused_ceiling
from partita.kube.events import Events, EventSubject
from partita.models import Allocation
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.reasons import gib
from partita.store.state import State
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["PlacementEvents"]


@dataclass(frozen=True, slots=True)
class PlacementEvents:
    """Reports placements to the log, and to the users of jobs and Pods."""

    state: State
    events: Events

    def report(
        self, job: Job, gpus: Sequence[str], pod: PodView, result: CycleResult, partition: str
    ) -> None:
        """Report where a job or a claim was placed.

        Parameters
        ----------
        gpus, pod
            The GPUServers on which it was allocated, and its Pod.
        result, partition
            The cycle, and the name of its partition.
        """
        answer = result.answer
        policy = result.chosen_by(job.id)
        structlog.get_logger().info(
            "placed",
            part="cycle_writer",
            job=job.name,
            partition=partition,
            gpu=",".join(gpus),
            memory=job.memory,
            policy=policy,
            reason=(answer.failure if answer else "") or "it fits",
        )
        found, allocated = self.state.jobs.get(job.id), self.state.allocated(job.id)
        node, amount = result.allocated[gpus[0]].node, _amount(job, allocated.values())
        if found is None:
            by = "predicted slowdown" if job.lasting else f"policy {policy}"
            said = f"{amount} on {', '.join(gpus)} (node {node}), chosen by {by}"
            subject = EventSubject.pod(pod.namespace, pod.name, pod.uid)
            self.events.inform(subject, "SliceAllocated", said)
            return
        limit = max((a.memory_limit or 0 for a in allocated.values()), default=0)
        ceiling = f" (up to {gib(limit)})" if limit else ""
        self.events.inform(
            found,
            "Scheduled",
            f"attempt {pod.attempt} gets {amount}{ceiling} on "
            f"{', '.join(gpus)} (node {node}), chosen by policy {policy}",
        )
        spec = self.state.partitions.get(partition)
        if spec is not None and (why := unused_ceiling(found, allocated, spec)):
            self.events.warn(found, "BurstNotAvailable", why)


def _amount(job: Job, allocated: Collection[Allocation]) -> str:
    """Return the memory that a job or a claim has got on each GPU."""
    memory = gib(max((entry.memory for entry in allocated), default=job.memory))
    if not job.alone or job.alone_by_faults:
        return memory
    return f"a whole GPU with {memory}" if job.gpus == 1 else f"whole GPUs with {memory} each"
