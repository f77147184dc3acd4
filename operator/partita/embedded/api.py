"""One API server without HTTP: the kinds it serves, its store, and the verbs on them."""

from __future__ import annotations

from partita.embedded.builtins import builtin_resources
from partita.embedded.crds import check_crd, prepare_crd, served_resources
from partita.embedded.deletions import Deleter
from partita.embedded.gc import Collector
from partita.embedded.reads import Reader
from partita.embedded.resources import Resource, Target, extractor, selectable_fields
from partita.embedded.store import Collection, Event, Record, Store
from partita.embedded.writes import WriteOptions, Writer

__all__ = ["API"]

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class API:
    """The kinds, the store and the verbs.

    Parameters
    ----------
    history_limit
        How many changes of each kind are kept for watches at least.

    Attributes
    ----------
    generation
        Grows with each change of what is served.
    """

    def __init__(self, history_limit: int) -> None:
        self.store = Store(history_limit)
        self.generation = 0
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._by_collection: dict[int, Resource] = {}
        for resource in builtin_resources(self.store):
            self._add(resource)
        self._namespaces = self._resources["", "v1", "namespaces"]
        self._crds = self._resources["apiextensions.k8s.io", "v1", "customresourcedefinitions"]
        self._crds.prepare, self._crds.check = prepare_crd, check_crd
        self.writer = Writer(self.store, lambda name: self._namespaces.collection.get("", name))
        self.deleter = Deleter(self.store, self.writer)
        self.reader = Reader(self.store)
        self.collector = Collector(
            self.store,
            self.writer,
            self.deleter,
            lambda c: self._by_collection[id(c)],
            self.resources,
        )
        self.store.on_change = self._on_change
        for name in _FIRST_NAMESPACES:
            body = {"metadata": {"name": name}}
            target = Target(self._namespaces, name=name)
            self.writer.create(target, body, WriteOptions(manager="kube-apiserver"))

    def resources(self) -> list[Resource]:
        """Return all kinds that are served."""
        return list(self._resources.values())

    def groups(self) -> dict[str, dict[str, list[Resource]]]:
        """Return all kinds by group and version."""
        out: dict[str, dict[str, list[Resource]]] = {}
        for resource in self._resources.values():
            out.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return out

    def resource(self, group: str, version: str, plural: str) -> Resource | None:
        """Return one kind."""
        return self._resources.get((group, version, plural))

    def _add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.version, resource.plural] = resource
        self._by_collection[id(resource.collection)] = resource
        self.generation += 1

    def _on_change(self, collection: Collection, event: Event) -> None:
        if collection is self._crds.collection:
            self._serve(event.record, gone=event.type == "DELETED")
        self.collector.observe(collection, event)

    def _serve(self, record: Record, *, gone: bool) -> None:
        """Serve what a CRD says, or no longer."""
        crd = record.obj
        spec = crd["spec"]
        key = (spec["group"], spec["names"]["plural"])
        former = [k for k in self._resources if (k[0], k[2]) == key]
        collection = None
        for k in former:
            collection = self._resources.pop(k).collection
        self.generation += 1
        if gone:
            if collection is not None:
                collection.close()
                self._by_collection.pop(id(collection), None)
            return
        if collection is None:
            served = next(v for v in spec["versions"] if v["storage"])
            collection = self.store.collection(extractor(selectable_fields(served)))
        for resource in served_resources(crd, collection):
            self._add(resource)
