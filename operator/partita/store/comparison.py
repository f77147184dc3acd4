"""Comparisons of objects with older versions and with other objects' statuses."""

from typing import Any

from partita.models import GPUPartition, GPUServer, Resource, SharedGPUJob
from partita.store.allocations import users_of
from partita.store.claim_view import ClaimView
from partita.store.finished_jobs import FinishedJob
from partita.store.unreadable import Unreadable
from partita.store.views import NamespaceView, NodeView, PodView

__all__ = ["Kept", "is_unrecorded", "is_wanted", "new_reports", "same_desired_state", "stub_of"]

Json = dict[str, Any]
Kept = Resource | PodView | ClaimView | NodeView | NamespaceView | FinishedJob | Unreadable
"""What the state keeps of an object."""


def is_unrecorded(job: SharedGPUJob, attempt: int) -> bool:
    """Return whether a job's status lacks an attempt's end; trimmed attempts are older."""
    outcomes = {a.number: a.outcome for a in job.status.attempts}
    return outcomes[attempt] is None if attempt in outcomes else attempt > max(outcomes, default=0)


def is_wanted(job: SharedGPUJob, attempt: int) -> bool:
    """Return whether a job still wants the Pod of an attempt to run."""
    return job.may_be_placed and is_unrecorded(job, attempt)


def new_reports(old: GPUServer | None, new: GPUServer | None) -> set[str]:
    """Return the UIDs of those of whom the agent reports that they became idle or busy."""
    before, after = (
        {uid: used.idle_since for uid, used in server.status.uses.items()} if server else {}
        for server in (old, new)
    )
    entries = new.status.allocations if new is not None else {}
    return users_of({u: e for u, e in entries.items() if before.get(u) != after.get(u)})


def same_desired_state(old: GPUPartition, new: GPUPartition) -> bool:
    """Return whether two versions of a partition differ in their status only."""
    before, after = (
        (meta.uid, meta.generation, meta.deletion_timestamp)
        for meta in (old.metadata, new.metadata)
    )
    return before == after


def stub_of(item: Kept) -> Json:
    """Return the metadata of an object that is needed to delete it."""
    if isinstance(item, Resource):
        return {"metadata": item.metadata.dump()}
    meta: Json = {"name": item.name, "uid": item.uid, "resourceVersion": str(item.version)}
    if not isinstance(item, NodeView | NamespaceView) and item.namespace:
        meta["namespace"] = item.namespace
    return {"metadata": meta}
