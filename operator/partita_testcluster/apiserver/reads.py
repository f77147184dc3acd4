"""List and watch requests: resourceVersions, pages, selectors, bookmarks."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from partita_testcluster.apiserver.errors import bad_request
from partita_testcluster.apiserver.resources import ServedResource
from partita_testcluster.apiserver.selectors import (
    Selector,
    parse_field_selector,
    parse_label_selector,
)
from partita_testcluster.apiserver.store import Record, Store, WatchEvent

__all__ = ["ListOptions", "Page", "page", "watch"]

_WATCH_TIMEOUT = 1800  # seconds; kube-apiserver's --min-request-timeout, doubled at random
_TRUE = ("1", "true", "True")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or a watch."""

    labels: Selector | None
    fields: Selector | None
    rv: int
    limit: int
    token: str  # continue
    watch: bool
    bookmarks: bool
    timeout: int  # seconds

    @classmethod
    def parse(cls, resource: ServedResource, query: Mapping[str, str]) -> ListOptions:
        """Read the query of a request.

        Raises
        ------
        APIError
            400 if an option is malformed.
        """
        fields = query.get("fieldSelector", "")
        return cls(
            labels=parse_label_selector(query.get("labelSelector", "")),
            fields=parse_field_selector(fields, resource.fields, resource.kind),
            rv=_number(query, "resourceVersion"),
            limit=_number(query, "limit"),
            token=query.get("continue", ""),
            watch=query.get("watch") in _TRUE,
            bookmarks=query.get("allowWatchBookmarks") in _TRUE,
            timeout=_number(query, "timeoutSeconds"),
        )

    def selects(self, record: Record) -> bool:
        """Return whether a record matches the selectors."""
        if self.labels is not None and not self.labels(record.labels):
            return False
        return self.fields is None or self.fields(record.fields)


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdecimal():
        raise bad_request(f'Invalid value: "{text}": {name}: not a number')
    return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """A list or a part of a list, with its metadata."""

    records: list[Record]
    meta: dict[str, Any]


def page(
    store: Store, resource: ServedResource, namespace: str | None, options: ListOptions
) -> Page:
    """Return the selected objects of a kind, in one namespace or in all (`None`).

    Raises
    ------
    APIError
        410 for a version that is no longer kept.
    """
    rv, start = _read_token(options.token) if options.token else (options.rv, 0)
    if not options.token:
        rv = store.rv
    collection, now = resource.collection, rv == store.rv
    found = collection.records(namespace) if now else collection.records_at(rv, namespace)
    records = [r for r in found if options.selects(r)]
    meta: dict[str, Any] = {"resourceVersion": str(rv)}
    end = start + options.limit if options.limit else len(records)
    if end < len(records):
        meta["continue"] = base64.urlsafe_b64encode(orjson.dumps([rv, end])).decode()
        if options.labels is None and options.fields is None:
            meta["remainingItemCount"] = len(records) - end
    return Page(records[start:end], meta)


def _read_token(token: str) -> tuple[int, int]:
    try:
        rv, start = orjson.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        raise bad_request("continue key is not valid") from None
    return rv, start


async def watch(
    store: Store,
    resource: ServedResource,
    namespace: str | None,
    options: ListOptions,
    bookmark_interval: float,
) -> AsyncGenerator[list[WatchEvent]]:
    """Yield changes as they occur. Each item contains all pending changes.

    A bookmark is an event of type ``BOOKMARK`` whose record has only a resourceVersion. Without
    changes there is one every `bookmark_interval` seconds.

    Raises
    ------
    APIError
        410 for a version that is no longer kept, also if the reader is too slow.
    """
    collection = resource.collection
    loop = asyncio.get_running_loop()
    seconds = options.timeout or _WATCH_TIMEOUT * random.uniform(1, 2)  # noqa: S311
    deadline = loop.time() + seconds
    rv = options.rv
    if not rv:
        position, rv = collection.end, store.rv
        yield [WatchEvent("ADDED", r) for r in collection.records(namespace) if options.selects(r)]
    else:
        position = collection.position(rv)
        yield []
    while True:
        changed = collection.changed
        events = collection.since(position)
        position += len(events)
        seen = (_seen_by(e, namespace, options) for e in events if e.record.rv > rv)
        if ready := [e for e in seen if e is not None]:
            yield ready
            continue
        left = deadline - loop.time()
        if left <= 0 or collection.closed:
            break
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, bookmark_interval)):
                await changed.wait()
        if not changed.is_set() and options.bookmarks:
            yield [_bookmark(resource, max(rv, store.rv))]


def _bookmark(resource: ServedResource, rv: int) -> WatchEvent:
    obj = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(rv), "creationTimestamp": None},
    }
    return WatchEvent(
        "BOOKMARK", Record("", "", "", rv, orjson.dumps(obj), {}, {}, (), deleting=False)
    )


def _seen_by(event: WatchEvent, namespace: str | None, options: ListOptions) -> WatchEvent | None:
    """Return the event for a watch with these options, or `None` if it gets no event."""
    record, previous = event.record, event.previous
    if namespace not in (None, record.namespace):
        return None
    if options.labels is None and options.fields is None:
        return event
    before = previous is not None and options.selects(previous)
    if event.type != "DELETED" and options.selects(record):
        return event if before or event.type == "ADDED" else WatchEvent("ADDED", record)
    if previous is None or not before:
        return None
    # The object no longer matches. The event has its last matching state and the new version.
    obj = previous.obj
    obj["metadata"]["resourceVersion"] = str(record.rv)
    return WatchEvent("DELETED", replace(previous, rv=record.rv, raw=orjson.dumps(obj)))
