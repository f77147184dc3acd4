"""The objects and their history, with one counter of resourceVersions.

An object is stored as the JSON bytes of its current version. Responses contain these bytes, and
each read of the object parses them again, so callers cannot change a stored object by accident. An
event is serialised once for all watches. All functions are synchronous, so a change is atomic
between two awaits of its caller.
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
"""Returns the selectable fields of an object except its name and namespace."""


@dataclass(slots=True, eq=False)
class Record:
    """One version of one object, with values that are needed without parsing it."""

    namespace: str
    name: str
    uid: str
    rv: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]  # selectable fields
    owners: tuple[str, ...]  # UIDs
    deleting: bool

    @property
    def obj(self) -> dict[str, Any]:
        """A new copy of the object."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed


@dataclass(eq=False)
class WatchEvent:
    """One change of one object in a watch."""

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
    """All objects of one kind, and their last changes.

    Parameters
    ----------
    extract
        Returns the selectable fields of an object.
    limit
        Minimum number of changes that are kept; older ones are compacted (410 Gone).
    start
        The resourceVersion from which on the kind is served.

    Attributes
    ----------
    changed
        Event that is set at the next change and then replaced by a new one.
    closed
        Whether the kind is no longer served, so that all watches end.
    """

    def __init__(self, extract: Extract, limit: int, start: int) -> None:
        self.extract = extract
        self.items: dict[str, dict[str, Record]] = {}
        self.closed = False
        self.changed = asyncio.Event()
        self._limit = limit
        self._events: list[WatchEvent] = []
        self._dropped = 0  # number of compacted events; positions include them
        self._compacted = start  # the last resourceVersion of compacted events

    def get(self, namespace: str, name: str) -> Record | None:
        """Return the current version of one object, or `None` if it does not exist."""
        return self.items.get(namespace, {}).get(name)

    def records(self, namespace: str | None = None) -> list[Record]:
        """Return the current objects, sorted by namespace and name; `None` for all namespaces."""
        return _ordered(self.items, namespace)

    def __len__(self) -> int:
        return sum(map(len, self.items.values()))

    def records_at(self, rv: int, namespace: str | None = None) -> list[Record]:
        """Return the objects at an earlier resourceVersion.

        Raises
        ------
        APIError
            410 if the history does not include it.
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
            410 if events after `rv` were compacted.
        """
        if rv < self._compacted:
            raise expired(f"too old resource version: {rv} ({self._compacted})")
        return self._dropped + bisect_right(self._events, rv, key=lambda e: e.record.rv)

    def since(self, position: int) -> list[WatchEvent]:
        """Return the events from a position on.

        Raises
        ------
        APIError
            410 if the reader was too slow, so that events were compacted before it read them.
        """
        if position < self._dropped:
            raise expired(f"too old resource version: fell behind ({self._compacted})")
        return self._events[position - self._dropped :]

    def publish(self, event: WatchEvent) -> None:
        """Append a change to the history and wake the tasks that wait for it."""
        self._events.append(event)
        if len(self._events) >= 2 * self._limit:
            self._compacted = self._events[self._limit - 1].record.rv
            del self._events[: self._limit]
            self._dropped += self._limit
        self._wake()

    def close(self) -> None:
        """End all watches because the kind is no longer served."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _ordered(items: dict[str, dict[str, Record]], namespace: str | None) -> list[Record]:
    spaces = sorted(items) if namespace is None else [namespace]
    return [names[n] for s in spaces for names in (items.get(s, {}),) for n in sorted(names)]


class Store:
    """All objects by UID, the counter of resourceVersions, and the dependents of owners.

    Attributes
    ----------
    rv
        The last assigned resourceVersion.
    by_uid
        Collection and record of each object that exists.
    dependents
        Owner's UID to its dependents' UIDs (the owner may be missing).
    on_change
        Function that is called after each change with the collection and the event.
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

        With `dry_run` the object is not stored and keeps its resourceVersion.
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
        """Remove an object and return its last version, which has a new resourceVersion."""
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
