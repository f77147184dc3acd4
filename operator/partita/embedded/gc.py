"""What Kubernetes' controllers clean up: dependents, namespaces' contents, CRDs' objects.

Level-triggered: each change marks the UIDs it may concern, and a task looks at each marked
object as it then is. It does not have: the cluster-wide rescan of Kubernetes' collector, so an
owner reference is looked at when its object or its owner changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from partita.embedded.deletions import CRD_FINALIZER, DeleteOptions, Deleter
from partita.embedded.resources import Resource, Target
from partita.embedded.store import Collection, Event, Record, Store
from partita.embedded.writes import Writer

__all__ = ["Collector"]

_BATCH = 50  # objects looked at before other tasks get their turn


class Collector:
    """Looks after what deletions leave behind.

    Parameters
    ----------
    resource_of
        Returns the resource of a collection.
    resources
        Returns all resources.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        deleter: Deleter,
        resource_of: Callable[[Collection], Resource],
        resources: Callable[[], list[Resource]],
    ) -> None:
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._resource_of = resource_of
        self._resources = resources
        self._marked: dict[str, None] = {}  # UIDs, in order
        self._wake = asyncio.Event()
        self._terminating: dict[str, str] = {}  # namespace to its UID

    async def run(self) -> None:
        """Look at marked objects, for ever."""
        done = 0
        while True:
            if not self._marked:
                self._wake.clear()
                await self._wake.wait()
            uid = next(iter(self._marked))
            del self._marked[uid]
            self._look(uid)
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def observe(self, collection: Collection, event: Event) -> None:
        """Mark whom a change may concern."""
        record = event.record
        if event.type == "DELETED":
            if record.uid in self._store.dependents:
                self._mark(record.uid)
            for owner in record.owners:
                self._mark(owner)
            self._observe_end(collection, record)
        elif record.deleting or any(o not in self._store.by_uid for o in record.owners):
            self._mark(record.uid)

    def _observe_end(self, collection: Collection, record: Record) -> None:
        if (uid := self._terminating.get(record.namespace)) is not None:
            self._mark(uid)
        if not len(collection):
            resource = self._resource_of(collection)
            if resource.custom and (crd := self._crd_of(resource)) and crd.deleting:
                self._mark(crd.uid)

    def _mark(self, uid: str) -> None:
        self._marked[uid] = None
        self._wake.set()

    def _crd_of(self, resource: Resource) -> Record | None:
        crds = next(r for r in self._resources() if r.kind == "CustomResourceDefinition")
        return crds.collection.get("", f"{resource.plural}.{resource.group}")

    # -- one object -----------------------------------------------------------------------

    def _look(self, uid: str) -> None:
        found = self._store.by_uid.get(uid)
        if found is None:
            for dependent in self._store.dependents.get(uid, ()):
                self._mark(dependent)
            return
        collection, record = found
        resource = self._resource_of(collection)
        if record.deleting:
            self._finish_deletion(resource, record)
        elif record.owners:
            self._check_owners(resource, record)

    def _check_owners(self, resource: Resource, record: Record) -> None:
        """Delete an object none of whose owners lives or wants to."""
        living, waiting = [], []
        references = record.obj["metadata"]["ownerReferences"]
        for reference in references:
            owner = self._living(reference["uid"], record.namespace)
            if owner is None:
                continue
            if owner.deleting and "foregroundDeletion" in _finalizers(owner):
                waiting.append(reference)
            else:
                living.append(reference)
        if living:
            if len(living) + len(waiting) < len(references):
                self._edit(resource, record, "ownerReferences", [*living, *waiting])
        elif waiting and record.uid in self._store.dependents:
            self._delete(resource, record, "Foreground")
        else:
            self._delete(resource, record, "")

    def _living(self, uid: str, namespace: str) -> Record | None:
        """Return an owner that may own something in `namespace`."""
        found = self._store.by_uid.get(uid)
        if found is None or found[1].namespace not in ("", namespace):
            return None
        return found[1]

    def _finish_deletion(self, resource: Resource, record: Record) -> None:
        finalizers = _finalizers(record)
        if "foregroundDeletion" in finalizers:
            self._delete_dependents(resource, record)
        elif "orphan" in finalizers:
            for dependent in list(self._store.dependents.get(record.uid, ())):
                collection, child = self._store.by_uid[dependent]
                kept = [
                    o for o in child.obj["metadata"]["ownerReferences"] if o["uid"] != record.uid
                ]
                self._edit(self._resource_of(collection), child, "ownerReferences", kept)
            self._edit(resource, record, "finalizers", [f for f in finalizers if f != "orphan"])
        elif resource.kind == "Namespace" and not resource.group:
            self._empty_namespace(resource, record)
        elif CRD_FINALIZER in finalizers:
            self._empty_kind(resource, record)

    def _delete_dependents(self, resource: Resource, record: Record) -> None:
        blocked = False
        for dependent in list(self._store.dependents.get(record.uid, ())):
            collection, child = self._store.by_uid[dependent]
            if not child.deleting:
                self._check_owners(self._resource_of(collection), child)
            if left := self._store.by_uid.get(dependent):
                references = left[1].obj["metadata"]["ownerReferences"]
                blocked |= any(
                    o["uid"] == record.uid and o.get("blockOwnerDeletion") for o in references
                )
        if not blocked:
            kept = [f for f in _finalizers(record) if f != "foregroundDeletion"]
            self._edit(resource, record, "finalizers", kept)

    def _empty_namespace(self, resource: Resource, record: Record) -> None:
        self._terminating[record.name] = record.uid
        left = 0
        for other in self._resources():
            if other.namespaced:
                for child in other.collection.records(record.name):
                    if not child.deleting:
                        self._delete(other, child, "Background")
                left += len(other.collection.items.get(record.name, ()))
        if not left and not _finalizers(record):
            del self._terminating[record.name]
            self._store.remove(resource.collection, record)

    def _empty_kind(self, resource: Resource, record: Record) -> None:
        spec = record.obj["spec"]
        left = 0
        for other in self._resources():
            if (other.group, other.plural) == (spec["group"], spec["names"]["plural"]):
                for child in other.collection.records():
                    if not child.deleting:
                        self._delete(other, child, "Background")
                left += len(other.collection)
        if not left:
            kept = [f for f in _finalizers(record) if f != CRD_FINALIZER]
            self._edit(resource, record, "finalizers", kept)

    # -- writes ---------------------------------------------------------------------------

    def _delete(self, resource: Resource, record: Record, policy: str) -> None:
        target = Target(resource, record.namespace, record.name)
        self._deleter.delete(target, DeleteOptions(policy=policy))

    def _edit(self, resource: Resource, record: Record, key: str, value: list[Any]) -> None:
        """Set a list in an object's metadata; an object deleted but for it is removed."""
        obj = record.obj
        meta = obj["metadata"]
        meta.pop(key, None)
        if value:
            meta[key] = value
        self._writer.write(resource, record, obj)


def _finalizers(record: Record) -> list[str]:
    return list(record.obj["metadata"].get("finalizers") or ())
