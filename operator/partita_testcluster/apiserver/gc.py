"""Cleanup by Kubernetes' controllers: dependents, contents of namespaces, objects of CRDs.

It is level-triggered: each change marks the UIDs that it may affect, and a task processes each
marked object in its current state. Unlike Kubernetes' collector it does not periodically rescan the
cluster, so an owner reference is checked only when its object or its owner changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partita_testcluster.apiserver.deletions import CRD_FINALIZER, DeleteOptions, delete
from partita_testcluster.apiserver.marks import MarkedObjects
from partita_testcluster.apiserver.resources import ServedResource, Target
from partita_testcluster.apiserver.store import Record, Store, WatchEvent
from partita_testcluster.apiserver.writes import Writer

__all__ = ["Collector"]


class Collector:
    """Completes deletions and deletes dependents.

    Parameters
    ----------
    resources
        Returns all resources.
    """

    def __init__(
        self, store: Store, writer: Writer, resources: Callable[[], list[ServedResource]]
    ) -> None:
        self._store = store
        self._writer = writer
        self._resources = resources
        self._marked = MarkedObjects()
        self._emptying: set[str] = set()  # UIDs of namespaces and CRDs whose contents are deleted

    async def run(self) -> None:
        """Process marked objects until cancelled."""
        await self._marked.process(self._look)

    def observe(self, event: WatchEvent) -> None:
        """Mark the objects that a change may affect."""
        record = event.record
        if event.type == "DELETED":
            self._emptying.discard(record.uid)
            self._marked.mark(*self._store.dependents.get(record.uid, ()))
            self._marked.mark(*record.owners, *self._emptying)
        elif record.deleting or any(o not in self._store.by_uid for o in record.owners):
            self._marked.mark(record.uid)

    # -- one object -----------------------------------------------------------------------

    def _look(self, uid: str) -> None:
        if (found := self._found(uid)) is None:
            return
        resource, record = found
        if record.deleting:
            self._finish_deletion(resource, record)
        elif record.owners:
            self._check_owners(resource, record)

    def _found(self, uid: str) -> tuple[ServedResource, Record] | None:
        if uid not in self._store.by_uid:
            return None
        collection, record = self._store.by_uid[uid]
        return next(r for r in self._resources() if r.collection is collection), record

    def _check_owners(self, resource: ServedResource, record: Record) -> None:
        """Delete an object without remaining owners."""
        references = record.obj["metadata"]["ownerReferences"]
        if not any(self._lives(r["uid"], record.namespace) for r in references):
            self._delete(resource, record, "")

    def _lives(self, uid: str, namespace: str) -> bool:
        """Return whether an owner exists and may own objects in `namespace`."""
        found = self._store.by_uid.get(uid)
        return found is not None and found[1].namespace in ("", namespace)

    def _finish_deletion(self, resource: ServedResource, record: Record) -> None:
        finalizers = _finalizers(record)
        if "orphan" in finalizers:
            for other, child in self._dependents(record):
                owners = child.obj["metadata"]["ownerReferences"]
                kept = [o for o in owners if o["uid"] != record.uid]
                self._edit(other, child, "ownerReferences", kept)
            self._release(resource, record, "orphan")
        elif resource.plural == "namespaces" or CRD_FINALIZER in finalizers:
            self._empty(resource, record)

    def _dependents(self, record: Record) -> list[tuple[ServedResource, Record]]:
        found = map(self._found, list(self._store.dependents.get(record.uid, ())))
        return [f for f in found if f is not None]

    def _empty(self, resource: ServedResource, record: Record) -> None:
        """Delete the objects in a namespace or of the kind of a CRD, then the object itself."""
        self._emptying.add(record.uid)
        for other, child in self._contents(resource, record):
            if not child.deleting:
                self._delete(other, child, "Background")
        if self._contents(resource, record):
            return
        if resource.plural != "namespaces":
            self._release(resource, record, CRD_FINALIZER)
        elif not _finalizers(record):
            self._store.remove(resource.collection, record)

    def _contents(
        self, resource: ServedResource, record: Record
    ) -> list[tuple[ServedResource, Record]]:
        in_namespace = resource.plural == "namespaces"
        return [
            (r, child)
            for r in self._resources()
            if (r.namespaced if in_namespace else f"{r.plural}.{r.group}" == record.name)
            for child in r.collection.records(record.name if in_namespace else None)
        ]

    # -- writes ---------------------------------------------------------------------------

    def _delete(self, resource: ServedResource, record: Record, policy: str) -> None:
        target = Target(resource, record.namespace, record.name)
        delete(self._store, target, DeleteOptions(policy=policy))

    def _release(self, resource: ServedResource, record: Record, finalizer: str) -> None:
        kept = [f for f in _finalizers(record) if f != finalizer]
        self._edit(resource, record, "finalizers", kept)

    def _edit(self, resource: ServedResource, record: Record, key: str, value: list[Any]) -> None:
        """Set a list in an object's metadata. If only this list delayed a deletion, complete it."""
        obj = record.obj
        obj["metadata"].pop(key, None)
        if value:
            obj["metadata"][key] = value
        self._writer.write(resource, record, obj)


def _finalizers(record: Record) -> list[str]:
    return list(record.obj["metadata"].get("finalizers") or ())
