"""The objects and their history, under one counter of resourceVersions.

An object is kept as the JSON bytes of its current version: what goes out is those bytes, what
comes in is parsed anew, so nobody can change a stored object by accident, and an event is
serialised once for all watchers. All of it is synchronous: between two awaits of its caller a
change is atomic.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from partita_testcluster.apiserver.errors import expired

__all__ = ["Collection", "Extract", "Record", "Store", "WatchEvent", "watch_line"]

Extract = Callable[[dict[str, Any]], dict[str, str]]
"""Returns the fields by which an object can be selected, but its name and namespace."""


@dataclass(slots=True, eq=False)
class Record:
    """One version of one object, with what is looked up without parsing it."""

    namespace: str
    name: str
    uid: str
    rv: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]  # by which it can be selected
    owners: tuple[str, ...]  # UIDs
    deleting: bool

    @property
    def obj(self) -> dict[str, Any]:
        """A fresh copy of the object."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed


@dataclass(eq=False)
class WatchEvent:
    """One change of one object, as watchers see it."""

    type: str
    record: Record
    previous: Record | None = None

    @cached_property
    def line(self) -> bytes:
        """The event as a line of a watch stream."""
        return watch_line(self.type, self.record.raw)


def watch_line(type_: str, raw: bytes) -> bytes:
    """Return a line of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), raw)


class Collection:
    """All objects of one kind, and the last changes to them.

    Parameters
    ----------
    extract
        Returns the fields by which an object can be selected.
    limit
        How many changes are kept at least; older ones are compacted (410 Gone).
    start
        The resourceVersion at which the kind began to be served.

    Attributes
    ----------
    changed
        Set at the next change; then there is another.
    closed
        The kind is no longer served: all watches end.
    """

    def __init__(self, extract: Extract, limit: int, start: int) -> None:
        self.extract = extract
        self.items: dict[str, dict[str, Record]] = {}
        self.closed = False
        self.changed = asyncio.Event()
        self._limit = limit
        self._events: list[WatchEvent] = []
        self._dropped = 0  # events compacted away; positions count from the first ever
        self._compacted = start  # the last resourceVersion among them

    def get(self, namespace: str, name: str) -> Record | None:
        """Return the current version of one object."""
        return self.items.get(namespace, {}).get(name)

    def records(self, namespace: str | None = None) -> list[Record]:
        """Return the current objects, by namespace and name; `None` means all namespaces."""
        return _ordered(self.items, namespace)

    def __len__(self) -> int:
        return sum(map(len, self.items.values()))

    def records_at(self, rv: int, namespace: str | None = None) -> list[Record]:
        """Return the objects as they were at an earlier resourceVersion.

        Raises
        ------
        APIError
            410 where that is longer ago than the history goes back.
        """
        items = {ns: dict(names) for ns, names in self.items.items()}
        for event in reversed(self.since(self.position(rv))):
            names = items.setdefault(event.record.namespace, {})
            names.pop(event.record.name, None)
            if event.previous is not None:
                names[event.record.name] = event.previous
        return _ordered(items, namespace)

    @property
    def end(self) -> int:
        """The position after the last event."""
        return self._dropped + len(self._events)

    def position(self, rv: int) -> int:
        """Return the position of the first event after `rv`.

        Raises
        ------
        APIError
            410 where events after `rv` are already gone.
        """
        if rv < self._compacted:
            raise expired(f"too old resource version: {rv} ({self._compacted})")
        return self._dropped + bisect_right(self._events, rv, key=lambda e: e.record.rv)

    def since(self, position: int) -> list[WatchEvent]:
        """Return the events from a position on.

        Raises
        ------
        APIError
            410 where the reader was too slow and events were compacted before it read them.
        """
        if position < self._dropped:
            raise expired(f"too old resource version: fell behind ({self._compacted})")
        return self._events[position - self._dropped :]

    def publish(self, event: WatchEvent) -> None:
        """Append a change to the history and wake those who wait for one."""
        self._events.append(event)
        if len(self._events) >= 2 * self._limit:
            self._compacted = self._events[self._limit - 1].record.rv
            del self._events[: self._limit]
            self._dropped += self._limit
        self._wake()

    def close(self) -> None:
        """End all watches: the kind is no longer served."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _ordered(items: dict[str, dict[str, Record]], namespace: str | None) -> list[Record]:
    spaces = sorted(items) if namespace is None else [namespace]
    return [names[n] for s in spaces for names in (items.get(s, {}),) for n in sorted(names)]


class Store:
    """Every collection, the counter of resourceVersions, and who owns whom.

    Attributes
    ----------
    rv
        The last resourceVersion given out.
    by_uid
        Where each living object is.
    dependents
        Owner's UID to its dependents' UIDs (the owner need not exist).
    on_change
        Called after each change, with the collection and the event.
    """

    def __init__(self, history_limit: int) -> None:
        self.rv = 1
        self.by_uid: dict[str, tuple[Collection, Record]] = {}
        self.dependents: dict[str, set[str]] = {}
        self.on_change: Callable[[Collection, WatchEvent], None] = lambda _collection, _event: None
        self._limit = history_limit

    def collection(self, extract: Extract) -> Collection:
        """Return a new, empty collection."""
        return Collection(extract, self._limit, self.rv)

    def put(self, collection: Collection, obj: dict[str, Any], *, dry_run: bool = False) -> Record:
        """Store a new version of an object, with the next resourceVersion.

        On a dry run nothing is stored, and the resourceVersion stays what it was.
        """
        if dry_run:
            return self._record(collection, obj)
        previous = collection.get(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        record = self._next(collection, obj)
        collection.items.setdefault(record.namespace, {})[record.name] = record
        if previous is not None:
            self._forget(previous)
        self.by_uid[record.uid] = (collection, record)
        for owner in record.owners:
            self.dependents.setdefault(owner, set()).add(record.uid)
        self._publish(collection, WatchEvent("MODIFIED" if previous else "ADDED", record, previous))
        return record

    def remove(self, collection: Collection, record: Record) -> Record:
        """Remove an object; return its last version, which has a resourceVersion of its own."""
        last = self._next(collection, record.obj)
        del collection.items[record.namespace][record.name]
        self._forget(record)
        self._publish(collection, WatchEvent("DELETED", last, record))
        return last

    def _next(self, collection: Collection, obj: dict[str, Any]) -> Record:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return self._record(collection, obj)

    def _record(self, collection: Collection, obj: dict[str, Any]) -> Record:
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        own = {"metadata.name": name, "metadata.namespace": namespace}
        return Record(
            namespace=namespace,
            name=name,
            uid=meta["uid"],
            rv=self.rv,
            raw=orjson.dumps(obj),
            labels=meta.get("labels") or {},
            fields=own | collection.extract(obj),
            owners=tuple(o["uid"] for o in meta.get("ownerReferences") or ()),
            deleting="deletionTimestamp" in meta,
        )

    def _forget(self, record: Record) -> None:
        self.by_uid.pop(record.uid, None)
        for owner in record.owners:
            if dependents := self.dependents.get(owner):
                dependents.discard(record.uid)
                if not dependents:
                    del self.dependents[owner]

    def _publish(self, collection: Collection, event: WatchEvent) -> None:
        collection.publish(event)
        self.on_change(collection, event)
