"""Objects as answers: as they are, as a `Table`, or their metadata only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from aiohttp import web

from partita.embedded.reads import Page
from partita.embedded.requests import JSON, form_of
from partita.embedded.resources import Resource
from partita.embedded.store import Event, Record, watch_line
from partita.embedded.tables import partial, table

__all__ = ["list_answer", "listed", "object_answer", "renderer", "value_answer"]


def value_answer(value: Any, code: int = 200, content_type: str = JSON) -> web.Response:
    """Return a JSON value."""
    headers = {"Content-Type": content_type}
    return web.Response(body=orjson.dumps(value), status=code, headers=headers)


def object_answer(
    request: web.BaseRequest,
    resource: Resource,
    record: Record,
    code: int = 200,
    warnings: Sequence[str] = (),
) -> web.Response:
    """Return one object, and warnings as headers (RFC 7234, section 5.5)."""
    form = form_of(request)
    body = record.raw
    if form == "Table":
        meta = {"resourceVersion": str(record.rv)}
        shown = table(resource.columns, [record.obj], meta, include=_include(request))
        body = orjson.dumps(shown)
    elif form:
        body = orjson.dumps(partial(record.obj))
    response = web.Response(body=body, status=code, content_type=JSON)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def list_answer(request: web.BaseRequest, resource: Resource, page: Page) -> web.Response:
    """Return a list of objects."""
    form = form_of(request)
    if form == "Table":
        objects = [r.obj for r in page.records]
        shown = table(resource.columns, objects, page.meta, include=_include(request))
        return value_answer(shown)
    if form:
        items = [orjson.dumps(partial(r.obj)) for r in page.records]
        return listed("PartialObjectMetadataList", "meta.k8s.io/v1", page.meta, items)
    items = [r.raw for r in page.records]
    return listed(resource.list_kind, resource.api_version, page.meta, items)


def listed(kind: str, version: str, meta: dict[str, Any], items: Sequence[bytes]) -> web.Response:
    """Return a list of objects that are JSON already."""
    head = orjson.dumps({"kind": kind, "apiVersion": version, "metadata": meta})
    body = head[:-1] + b',"items":[' + b",".join(items) + b"]}"
    return web.Response(body=body, content_type=JSON)


def renderer(request: web.BaseRequest, resource: Resource) -> Callable[[Event], bytes]:
    """Return a function that makes a watch's lines of events, in the form asked for."""
    form = form_of(request)
    if not form:
        return lambda event: event.line
    include = _include(request)
    first = True

    def render(event: Event) -> bytes:
        nonlocal first
        if event.type == "BOOKMARK":
            return event.line
        obj = event.record.obj
        if form == "Table":
            meta = {"resourceVersion": str(event.record.rv)}
            shown = table(resource.columns, [obj], meta, include=include, headers=first)
            first = False
        else:
            shown = partial(obj)
        return watch_line(event.type, orjson.dumps(shown))

    return render


def _include(request: web.BaseRequest) -> str:
    return request.query.get("includeObject", "Metadata")
