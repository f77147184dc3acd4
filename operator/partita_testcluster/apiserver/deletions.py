"""Deletion: preconditions, finalizers, propagation, grace periods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from partita_testcluster.apiserver.errors import object_error
from partita_testcluster.apiserver.meta import now, timestamp
from partita_testcluster.apiserver.resources import ServedResource, Target
from partita_testcluster.apiserver.store import Record, Store

__all__ = ["CRD_FINALIZER", "DeleteOptions", "delete"]

CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that keeps a CRD until the objects of its kind are deleted."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a deletion.

    Attributes
    ----------
    policy
        ``Background``, ``Orphan``, or empty to use the object's finalizers.
    grace
        Grace period of a Pod in seconds; `None` for that in the Pod's spec.
    uid
        Precondition.
    """

    policy: str = ""
    grace: int | None = None
    uid: str = ""
    dry_run: bool = False


def delete(store: Store, target: Target, options: DeleteOptions) -> tuple[Record, bool]:
    """Delete an object, or mark it for deletion.

    Returns
    -------
    tuple
        Its last version, and whether the object was removed.

    Raises
    ------
    APIError
        404, or 409 if a precondition does not hold.
    """
    resource, record = target.resource, target.existing()
    if options.uid not in ("", record.uid):
        why = (
            f"Precondition failed: UID in precondition: {options.uid}, in object meta: {record.uid}"
        )
        # Only in this error kube-apiserver gives the kind instead of the resource.
        raise object_error("Conflict", resource.group, resource.kind, target.name, why)
    obj = record.obj
    meta = obj["metadata"]
    grace = _grace(resource, obj, options.grace)
    finalizers = _finalizers(resource, meta, options.policy)
    if not (finalizers or grace or resource.plural == "namespaces"):
        return (record if options.dry_run else store.remove(resource.collection, record)), True
    if finalizers:
        meta["finalizers"] = finalizers
    _mark(resource, obj, grace)
    if obj == record.obj:
        return record, False
    return store.put(resource.collection, obj, dry_run=options.dry_run), False


def _grace(resource: ServedResource, obj: dict[str, Any], asked: int | None) -> int:
    """Return the seconds for which the object's deletion waits for its kubelet."""
    if resource.group or resource.plural != "pods" or not obj["spec"].get("nodeName"):
        return 0
    if obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    wanted: int = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    left: int = obj["metadata"].get("deletionGracePeriodSeconds", wanted)
    return min(wanted, left)


def _finalizers(resource: ServedResource, meta: dict[str, Any], policy: str) -> list[str]:
    """Return the finalizers of the object after a deletion with this policy."""
    out = list(meta.get("finalizers") or ())
    if policy == "Orphan" and "orphan" not in out:
        out.append("orphan")
    if resource.plural == "customresourcedefinitions" and "deletionTimestamp" not in meta:
        out.append(CRD_FINALIZER)
    return out


def _mark(resource: ServedResource, obj: dict[str, Any], grace: int) -> None:
    """Mark an object as being deleted, or shorten its grace period if it is already marked."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = now(grace)
        if "generation" in meta:
            meta["generation"] += 1
        if resource.plural == "namespaces":
            obj["status"]["phase"] = "Terminating"
        else:
            meta["deletionGracePeriodSeconds"] = grace
    elif (left := meta.get("deletionGracePeriodSeconds", 0)) > grace:
        sooner = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp() - left + grace
        meta["deletionTimestamp"] = timestamp(sooner)
        meta["deletionGracePeriodSeconds"] = grace
