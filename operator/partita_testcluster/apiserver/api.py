"""An API server without HTTP: the kinds that it serves, its store, and its operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partita_testcluster.apiserver.builtins import builtin_resources
from partita_testcluster.apiserver.controllers.controllers import Controllers
from partita_testcluster.apiserver.crds import check_crd, prepare_crd
from partita_testcluster.apiserver.gc import Collector
from partita_testcluster.apiserver.resources import ServedResource, Target, custom_resource
from partita_testcluster.apiserver.store import Collection, Store, WatchEvent
from partita_testcluster.apiserver.writes import WriteOptions, Writer

__all__ = ["ServedAPI"]

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class ServedAPI:
    """The served kinds, the store and its operations.

    Parameters
    ----------
    history_limit
        Minimum number of changes of each kind that are kept for watches.
    bookmark_interval
        Seconds between two bookmarks of an idle watch.

    Attributes
    ----------
    generation
        Increases with each change of the served kinds.
    """

    def __init__(self, history_limit: int, bookmark_interval: float) -> None:
        self.store = Store(history_limit)
        self.bookmark_interval = bookmark_interval
        self.generation = 0
        builtin = builtin_resources(self.store)
        self._resources = {(r.group, r.version, r.plural): r for r in builtin}
        namespaces = self._resources["", "v1", "namespaces"]
        self._crds = self._resources["apiextensions.k8s.io", "v1", "customresourcedefinitions"]
        self._crds.rules = replace(self._crds.rules, prepare=prepare_crd, check=check_crd)
        self.writer = Writer(self.store, lambda name: namespaces.collection.get("", name))
        self.collector = Collector(self.store, self.writer, self.resources)
        self.controllers = Controllers(self.store, self.writer, self.resources)
        self.store.on_change = self._on_change
        for name in _FIRST_NAMESPACES:
            body = {"metadata": {"name": name}}
            self.writer.create(Target(namespaces, name=name), body, WriteOptions())

    def resources(self) -> list[ServedResource]:
        """Return all served kinds."""
        return list(self._resources.values())

    def groups(self) -> dict[str, dict[str, list[ServedResource]]]:
        """Return all served kinds by group and version."""
        out: dict[str, dict[str, list[ServedResource]]] = {}
        for resource in self._resources.values():
            out.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return out

    def resource(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return one kind, or `None` if it is not served."""
        return self._resources.get((group, version, plural))

    def _on_change(self, collection: Collection, event: WatchEvent) -> None:
        if collection is self._crds.collection:
            self._serve(event.record.obj, gone=event.type == "DELETED")
        self.collector.observe(event)
        self.controllers.observe(collection, event)

    def _serve(self, crd: dict[str, Any], *, gone: bool) -> None:
        """Serve the kind of a CRD, or stop serving it if the CRD is gone."""
        spec = crd["spec"]
        key = (spec["group"], spec["names"]["plural"])
        former = [k for k in self._resources if (k[0], k[2]) == key]
        collections = [self._resources.pop(k).collection for k in former]
        self.generation += 1
        if gone:
            for collection in collections:
                collection.close()
            return
        make = (lambda _extract: collections[0]) if collections else self.store.collection
        for version in spec["versions"]:
            if version["served"]:
                resource = custom_resource(crd, version, make)
                self._resources[resource.group, resource.version, resource.plural] = resource
