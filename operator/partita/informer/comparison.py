"""What the state compares of objects: with an older version, and with what others say of them."""

from typing import Any

from partita.informer.views import NamespaceView, NodeView, PodView
from partita.models import GPUPartition, Resource, SharedGPUJob

__all__ = ["is_untold", "same_wish", "stub_of"]

Json = dict[str, Any]


def is_untold(job: SharedGPUJob, attempt: int) -> bool:
    """Tell whether a job's status does not say how an attempt ended; trimmed ones are older."""
    told = {a.number: a.outcome for a in job.status.attempts}
    return told[attempt] is None if attempt in told else attempt > max(told, default=0)


def same_wish(old: GPUPartition, new: GPUPartition) -> bool:
    """Tell whether two versions of a partition ask for the same: only its status differs."""
    a, b = old.metadata, new.metadata
    return (a.uid, a.generation, a.deletion_timestamp) == (
        b.uid,
        b.generation,
        b.deletion_timestamp,
    )


def stub_of(item: Resource | PodView | NodeView | NamespaceView) -> Json:
    """Return as much of an object as it takes to delete it."""
    if isinstance(item, Resource):
        return {"metadata": item.metadata.dump()}
    meta: Json = {"name": item.name, "uid": item.uid, "resourceVersion": str(item.version)}
    if isinstance(item, PodView):
        meta["namespace"] = item.namespace
    return {"metadata": meta}
