"""Which waiting jobs may start at all: those that namespace, quota and services' limit allow."""

from dataclasses import dataclass, replace

from partita.models import GPUPartition
from partita.scheduling.endable import Endable
from partita.scheduling.guard import Guard
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.state import State
from partita_policies.amounts import GPUAmounts, held_by
from partita_policies.types import Job

__all__ = ["Eligibility"]


@dataclass
class Eligibility:
    """Says in one cycle which jobs may start.

    Parameters
    ----------
    endable
        Which running jobs may be ended for a waiting one. What these hold counts against no limit
        of services, because a lasting job may take their place.
    """

    partition: GPUPartition
    state: State
    guard: Guard
    endable: Endable

    def __post_init__(self) -> None:
        self._kept: dict[int, GPUAmounts] = {}
        """By priority, what the lasting jobs hold that may not be ended."""

    def why_not(self, job: Job) -> WaitingReason | None:
        """Return why a job may not start now, wherever there is room; None if it may."""
        partition, guard = self.partition, self.guard
        selector = partition.spec.allowed_namespaces
        namespace = self.state.namespaces.get(job.namespace)
        if selector is not None and not selector.matches(namespace.labels if namespace else {}):
            return WaitingReason(
                Reason.NAMESPACE_NOT_ALLOWED,
                f"partition {partition.metadata.name} does not serve namespace {job.namespace}: "
                "label the namespace as spec.allowedNamespaces asks, or use another partition",
            )
        why = guard.limit_anywhere(job)
        if why is None or why.reason is not Reason.SERVICES_LIMIT:
            return why
        may_replace = guard.limit_anywhere(job, lasting=self._kept_by(job)) is None
        return None if may_replace else why

    def _kept_by(self, job: Job) -> GPUAmounts:
        """Return what the lasting jobs hold that may not be ended for a lasting job."""
        if job.priority not in self._kept:
            kept = (
                replace(
                    gpu,
                    running=tuple(b for b in gpu.running if not self.endable.allows(b, job)),
                )
                for gpu in self.guard.gpus
            )
            self._kept[job.priority] = held_by(kept, lasting=True)
        return self._kept[job.priority]
