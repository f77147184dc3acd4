"""The objects as controllers read and write them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from partita_testcluster.apiserver.deletions import DeleteOptions, delete
from partita_testcluster.apiserver.meta import dig, now
from partita_testcluster.apiserver.resources import ServedResource, Target
from partita_testcluster.apiserver.store import Store
from partita_testcluster.apiserver.writes import WriteOptions, Writer

__all__ = ["Obj", "Objects", "controller_of", "owner_reference", "pod_of", "ready", "terminated"]

Obj = dict[str, Any]

_NAME = "kube-controller-manager"


class Objects:
    """Reads and writes objects of built-in kinds, which are named by their plural.

    Parameters
    ----------
    resources
        Returns all served kinds.
    """

    def __init__(
        self, store: Store, writer: Writer, resources: Callable[[], list[ServedResource]]
    ) -> None:
        self._store = store
        self._writer = writer
        self._resources = {r.plural: r for r in resources()}

    def resource(self, plural: str) -> ServedResource:
        """Return a kind."""
        return self._resources[plural]

    def get(self, plural: str, namespace: str, name: str) -> Obj | None:
        """Return an object, or `None` if it does not exist."""
        record = self._resources[plural].collection.get(namespace, name)
        return record.obj if record else None

    def controlled(self, plural: str, owner: Obj) -> list[Obj]:
        """Return the objects of a kind whose controller is `owner`, the oldest first."""
        uid, collection = owner["metadata"]["uid"], self._resources[plural].collection
        found = (self._store.by_uid[child] for child in self._store.dependents.get(uid, ()))
        objects = [record.obj for place, record in found if place is collection]
        mine = [o for o in objects if controller_of(o).get("uid") == uid]
        return sorted(mine, key=lambda o: (o["metadata"]["creationTimestamp"],
                                           o["metadata"]["name"]))  # fmt: skip

    def create(self, plural: str, namespace: str, obj: Obj) -> Obj:
        """Create an object and return it."""
        target = Target(self._resources[plural], namespace)
        return self._writer.create(target, obj, WriteOptions(_NAME)).obj

    def update(self, plural: str, obj: Obj) -> Obj:
        """Write an object except its status, and return it."""
        return self._write(plural, obj, "")

    def update_status(self, plural: str, obj: Obj) -> Obj:
        """Write the status of an object, and return the object."""
        return self._write(plural, obj, "status")

    def _write(self, plural: str, obj: Obj, subresource: str) -> Obj:
        meta = obj["metadata"]
        target = Target(self._resources[plural], meta["namespace"], meta["name"], subresource)
        return self._writer.update(target, obj, WriteOptions(_NAME)).obj

    def delete(self, plural: str, obj: Obj) -> None:
        """Delete an object unless it is being deleted."""
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta:
            target = Target(self._resources[plural], meta["namespace"], meta["name"])
            delete(self._store, target, DeleteOptions(policy="Background"))

    def warn(self, about: Obj, reason: str, message: str) -> None:
        """Write an Event about an object, once."""
        meta = about["metadata"]
        text = f"{meta['uid']} {reason} {message}".encode()
        name = f"{meta['name']}.{hashlib.sha256(text).hexdigest()[:16]}"
        if self.get("events", meta["namespace"], name) is None:
            keys = ("apiVersion", "kind")
            involved = {k: about[k] for k in keys} | {
                k: meta[k] for k in ("name", "namespace", "uid")
            }
            event = {
                "metadata": {"name": name},
                "involvedObject": involved,
                "type": "Warning",
                "reason": reason,
                "message": message,
                "firstTimestamp": now(),
                "lastTimestamp": now(),
                "count": 1,
                "source": {"component": _NAME},
            }
            self.create("events", meta["namespace"], event)


def owner_reference(owner: Obj) -> Obj:
    """Return the reference to the controller of a new object."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Obj) -> Obj:
    """Return the reference to an object's controller; empty if it has none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def pod_of(owner: Obj, **meta: Any) -> Obj:
    """Return a new Pod of the template of its controller; its name is generated by default."""
    template = owner["spec"]["template"]
    given = {k: v for k, v in (template.get("metadata") or {}).items() if v}
    kept = {k: given[k] for k in ("labels", "annotations", "finalizers") if k in given}
    own = {
        "generateName": f"{owner['metadata']['name']}-",
        "ownerReferences": [owner_reference(owner)],
    }
    return {"metadata": kept | own | meta, "spec": template["spec"]}


def ready(pod: Obj) -> bool:
    """Return whether a Pod is ready."""
    conditions = dig(pod, "status.conditions") or ()
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def terminated(pod: Obj) -> bool:
    """Return whether no container of a Pod runs any more, or will run."""
    return dig(pod, "status.phase") in ("Succeeded", "Failed")
