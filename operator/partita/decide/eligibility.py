"""Which waiting jobs may start at all: those that namespace, quota and services' limit allow."""

from partita.decide.guard import Guard
from partita.informer.state import State
from partita.models import GPUPartition
from partita.reconcile.reasons import Reason, Why
from partita_policies.types import Job

__all__ = ["why_not_eligible"]


def why_not_eligible(job: Job, partition: GPUPartition, state: State, guard: Guard) -> Why | None:
    """Return why a job may not start now, wherever there is room; None if it may."""
    selector, namespace = partition.spec.allowed_namespaces, state.namespaces.get(job.namespace)
    if selector is not None and not selector.matches(namespace.labels if namespace else {}):
        return Why(
            Reason.NAMESPACE_NOT_ALLOWED,
            f"partition {partition.metadata.name} does not serve namespace {job.namespace}: label "
            "the namespace as spec.allowedNamespaces asks, or use another partition",
        )
    return guard.limit_reached(job, guard.least_memory(job))
