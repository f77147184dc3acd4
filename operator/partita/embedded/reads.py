"""What list and watch mean: resourceVersions, pages, selectors, bookmarks."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from partita.embedded.errors import APIError, FieldError, bad_request, expired, invalid
from partita.embedded.resources import Resource
from partita.embedded.selectors import Selector, parse_field_selector, parse_label_selector
from partita.embedded.store import Collection, Event, Record, Store

__all__ = ["ListOptions", "Page", "Reader"]

_BOOKMARK_INTERVAL = 60.0  # seconds, as in kube-apiserver's watch cache
_WATCH_TIMEOUT = 1800  # seconds; kube-apiserver's --min-request-timeout, doubled at random
_KEPT_LISTS = 64  # lists whose further pages can still be asked for


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or a watch."""

    labels: Selector | None = None
    fields: Selector | None = None
    rv: str = ""
    match: str = ""  # resourceVersionMatch
    limit: int = 0
    token: str = ""  # continue
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: float = 0  # seconds

    @classmethod
    def parse(cls, resource: Resource, query: Mapping[str, str]) -> ListOptions:
        """Read the query of a request.

        Raises
        ------
        APIError
            400 or 422 where an option is malformed or makes no sense with another.
        """
        initial = query.get("sendInitialEvents")
        options = cls(
            labels=parse_label_selector(query.get("labelSelector", "")),
            fields=parse_field_selector(
                query.get("fieldSelector", ""), resource.fields, resource.kind
            ),
            rv=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
            limit=_number(query, "limit"),
            token=query.get("continue", ""),
            watch=query.get("watch", "") in ("1", "true", "True"),
            bookmarks=query.get("allowWatchBookmarks") in ("1", "true", "True"),
            initial_events=None if initial is None else initial in ("1", "true", "True"),
            timeout=_number(query, "timeoutSeconds"),
        )
        if problems := options.problems():
            raise invalid("meta.k8s.io", "ListOptions", "", problems)
        if options.rv and not options.rv.isdecimal():
            raise bad_request(f'Invalid value: "{options.rv}": resourceVersion: not a number')
        return options

    def problems(self) -> list[FieldError]:
        """Return which options contradict each other (apimachinery, meta/internalversion)."""
        match = ("resourceVersionMatch",)
        given = bool(self.match)
        initial = self.initial_events is not None
        forbidden = (
            (match, self.watch and given and not initial,
             "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
            (match, self.watch and initial and self.match != "NotOlderThan",
             "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
            (("sendInitialEvents",), initial and not self.watch,
             "sendInitialEvents is forbidden for list"),
            (match, given and not self.watch and not self.rv,
             "resourceVersionMatch is forbidden unless resourceVersion is provided"),
            (match, self.match == "Exact" and self.rv == "0",
             'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'),
            (match, given and bool(self.token),
             "resourceVersionMatch is forbidden when continue is provided"),
        )  # fmt: skip
        out = [FieldError(path, "Forbidden", why) for path, wrong, why in forbidden if wrong]
        if self.match not in ("", "Exact", "NotOlderThan"):
            detail = 'supported values: "Exact", "NotOlderThan"'
            out.append(FieldError(match, "Unsupported value", detail, self.match))
        return out

    def selects(self, record: Record) -> bool:
        """Return whether a record matches the selectors."""
        if self.labels is not None and not self.labels(record.labels):
            return False
        return self.fields is None or self.fields(record.fields)


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdecimal():
        raise bad_request(f"{name} must be a number, not {text!r}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or a part of it."""

    records: list[Record]
    rv: int
    token: str = ""
    remaining: int = 0

    @property
    def meta(self) -> dict[str, Any]:
        """The list's metadata."""
        meta: dict[str, Any] = {"resourceVersion": str(self.rv)}
        if self.token:
            meta["continue"] = self.token
            if self.remaining:
                meta["remainingItemCount"] = self.remaining
        return meta


class Reader:
    """Lists and watches of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[int, tuple[Collection, list[Record], int]] = OrderedDict()
        self._last = 0

    def page(self, resource: Resource, namespace: str | None, options: ListOptions) -> Page:
        """Return the selected objects of a kind, in one namespace or in all (`None`).

        Raises
        ------
        APIError
            410 for a version or page no longer kept, 504 for a version yet to come.
        """
        if options.token:
            number, start = self._read_token(options.token)
            kept = self._kept.get(number)
            if kept is None or kept[0] is not resource.collection:
                raise expired(
                    "The provided continue parameter is too old to display a consistent list "
                    "result. You can start a new list without the continue parameter."
                )
            _, records, rv = kept
        else:
            records, rv, number, start = *self._current(resource, namespace, options), 0, 0
            records = [r for r in records if options.selects(r)]
        end = start + options.limit if options.limit else len(records)
        if end >= len(records):
            return Page(records[start:], rv)
        if not number:
            number = self._last = self._last + 1
            self._kept[number] = (resource.collection, records, rv)
            if len(self._kept) > _KEPT_LISTS:
                self._kept.popitem(last=False)
        token = base64.urlsafe_b64encode(orjson.dumps([number, end])).decode()
        selected = options.labels is not None or options.fields is not None
        return Page(records[start:end], rv, token, 0 if selected else len(records) - end)

    @staticmethod
    def _read_token(token: str) -> tuple[int, int]:
        try:
            number, start = orjson.loads(base64.urlsafe_b64decode(token))
        except ValueError:
            raise bad_request("continue key is not valid") from None
        return number, start

    def _current(
        self, resource: Resource, namespace: str | None, options: ListOptions
    ) -> tuple[list[Record], int]:
        rv = int(options.rv or 0)
        self._check_reached(rv)
        collection = resource.collection
        exact = options.match == "Exact" or (options.limit and rv and not options.match)
        if exact and rv != self._store.rv:
            return collection.records_at(rv, namespace), rv
        return collection.records(namespace), self._store.rv

    def _check_reached(self, rv: int) -> None:
        if rv > self._store.rv:
            raise APIError(504, "Timeout", (
                f"Too large resource version: {rv}, current: {self._store.rv}"),
                {"retryAfterSeconds": 1, "causes": [{
                    "reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
            )  # fmt: skip

    async def watch(
        self, resource: Resource, namespace: str | None, options: ListOptions
    ) -> AsyncGenerator[list[Event]]:
        """Yield changes as they happen, several at once where several are pending.

        A bookmark is an event of that type whose record has but a resourceVersion.

        Raises
        ------
        APIError
            410 for a version no longer kept, also when the reader is too slow.
        """
        collection = resource.collection
        loop = asyncio.get_running_loop()
        seconds = options.timeout or _WATCH_TIMEOUT * random.uniform(1, 2)  # noqa: S311
        deadline = loop.time() + seconds
        rv = int(options.rv or 0)
        if options.initial_events is not None:
            self._check_reached(rv)
        if options.initial_events or (options.initial_events is None and not rv):
            position = collection.end
            rv = self._store.rv
            first = [Event("ADDED", r, None) for r in collection.records(namespace)
                     if options.selects(r)]  # fmt: skip
            if options.initial_events and options.bookmarks:
                marked = {"annotations": {"k8s.io/initial-events-end": "true"}}
                first.append(self._bookmark(resource, rv, marked))
            yield first
        else:
            position = collection.position(rv)
            yield []
        while True:
            events = collection.since(position)
            position += len(events)
            seen = (_seen_by(e, namespace, options) for e in events if e.record.rv > rv)
            if ready := [e for e in seen if e is not None]:
                yield ready
                continue
            left = deadline - loop.time()
            if left <= 0 or collection.closed:
                break
            changed = collection.changed()
            await asyncio.wait({changed}, timeout=min(left, _BOOKMARK_INTERVAL))
            if not changed.done() and options.bookmarks:
                yield [self._bookmark(resource, max(rv, self._store.rv), {})]

    @staticmethod
    def _bookmark(resource: Resource, rv: int, meta: dict[str, Any]) -> Event:
        obj = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(rv), "creationTimestamp": None} | meta,
        }
        record = Record("", "", "", rv, orjson.dumps(obj), {}, {}, (), deleting=False)
        return Event("BOOKMARK", record, None)


def _seen_by(event: Event, namespace: str | None, options: ListOptions) -> Event | None:
    """Return the event as a watcher with these selectors sees it."""
    if namespace is not None and event.record.namespace != namespace:
        return None
    if options.labels is None and options.fields is None:
        return event
    now = event.type != "DELETED" and options.selects(event.record)
    before = event.previous is not None and options.selects(event.previous)
    if now == before:
        return event if now else None
    if now:
        return event if event.type == "ADDED" else Event("ADDED", event.record, None)
    return event if event.type == "DELETED" else _departure(event)


def _departure(event: Event) -> Event:
    """Return the event by which an object leaves a selection: as it was, at the new version."""
    was = event.previous or event.record
    obj = was.obj
    obj["metadata"]["resourceVersion"] = str(event.record.rv)
    return Event("DELETED", replace(was, rv=event.record.rv, raw=orjson.dumps(obj)), None)
