"""Which running jobs may be ended for a waiting one.

A job is preempted for one of a higher priority. For one of its own priority it is ended in two
cases: it is idle, where the partition says so (`idle.action: Evict`), or its namespace has borrowed
what another one is guaranteed (`quotas[].guaranteed`) and needs now. A lasting job is preempted
only for another lasting job.

So preemption always terminates: no job is ended for one of a lower priority. Among equals, what is
ended for a guarantee belongs to a namespace above its own, so it ends nobody for it in turn.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from partita.models import GPUPartition, GPUServer
from partita.scheduling.idle import evictable
from partita_policies.amounts import GPUAmounts, share_of
from partita_policies.types import Job, RunningJob

__all__ = ["NOTHING", "Endable", "ends_jobs"]

NOTHING = -(1 << 31)
"""Below every priority."""


def ends_jobs(partition: GPUPartition) -> bool:
    """Return whether jobs of a partition may be ended for others."""
    spec = partition.spec
    evicts = spec.idle is not None and spec.idle.action == "Evict"
    return spec.preemption == "LowerPriority" or evicts or bool(_guaranteed(partition))


def _guaranteed(partition: GPUPartition) -> dict[str, int]:
    quotas = partition.spec.quotas
    return {quota.namespace: quota.guaranteed for quota in quotas if quota.guaranteed}


@dataclass(frozen=True, slots=True)
class Endable:
    """Which running jobs may be ended for a waiting job."""

    kept: Collection[str] = ()
    """UIDs of jobs that must not be ended."""
    idle: Collection[str] = ()
    """UIDs of idle workloads, which are ended first."""
    lower_priority: bool = True
    """Whether jobs of a lower priority may be preempted."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Bytes that each namespace is guaranteed."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weight of each namespace; 1 for one that is not listed."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes that each namespace will hold once those that are being ended have ended."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The dominant share that it will have then, divided by its weight."""

    @classmethod
    def of(
        cls,
        partition: GPUPartition,
        servers: Iterable[GPUServer],
        protected: Collection[str],
        now: datetime,
    ) -> Self:
        """Return which jobs of a partition may be ended.

        Parameters
        ----------
        servers
            The GPUServers of the partition.
        protected
            UIDs of claims whose Pods cannot be evicted now.
        """
        return cls(
            kept=protected,
            idle=evictable(servers, partition.spec, now) - set(protected),
            lower_priority=partition.spec.preemption == "LowerPriority",
            guaranteed=_guaranteed(partition),
            weights={quota.namespace: quota.weight for quota in partition.spec.quotas},
        )

    def when_held(
        self, held: Mapping[str, GPUAmounts], total: GPUAmounts, kept: Collection[str]
    ) -> Self:
        """Return the same where namespaces hold so much of all GPUs, and others are kept."""
        shares = {
            name: share_of(amounts, total).share / self.weights.get(name, 1)
            for name, amounts in held.items()
        }
        memory = {name: amounts.memory for name, amounts in held.items()}
        return replace(self, kept=kept, memory=memory, shares=shares)

    def allows(self, victim: RunningJob, job: Job) -> bool:
        """Return whether a running job may be ended for a waiting job."""
        if victim.job in self.kept or victim.priority > job.priority:
            return False
        if victim.job in self.idle:
            return True
        if victim.lasting and not job.lasting:
            return False
        lower = self.lower_priority and victim.priority < job.priority
        return lower or self._reclaims(victim, job)

    def _reclaims(self, victim: RunningJob, job: Job) -> bool:
        """Return whether a running job has what the namespace of a waiting one is guaranteed."""
        if victim.lasting or victim.namespace == job.namespace:
            return False
        if job.alone:
            return False  # what it will take is not known, and cannot be compared
        own, needed = self.guaranteed.get(job.namespace, 0), job.memory * job.gpus
        within = self.memory.get(job.namespace, 0) + needed <= own
        lent = self.memory.get(victim.namespace, 0) - self.guaranteed.get(victim.namespace, 0)
        return within and lent > 0

    def cost(self, victim: RunningJob) -> int:
        """Return the priority that ending a running job costs; an idle one costs nothing."""
        return NOTHING if victim.job in self.idle else victim.priority

    def least_priority(self, running: Iterable[RunningJob]) -> int | None:
        """Return the lowest priority for which any of these may be ended; None if none may."""
        least = [
            one.priority
            if one.job in self.idle or (self.guaranteed and not one.lasting)
            else one.priority + 1
            for one in running
            if one.job in self.idle or self.guaranteed or self.lower_priority
        ]
        return min(least, default=None)
