"""Requests and responses: bodies, queries, and the requested form of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from partita.validation.field_errors import FieldError
from partita_testcluster.apiserver import protobuf
from partita_testcluster.apiserver.deletions import DeleteOptions
from partita_testcluster.apiserver.errors import APIError, bad_request, invalid
from partita_testcluster.apiserver.reads import Page
from partita_testcluster.apiserver.resources import ServedResource
from partita_testcluster.apiserver.store import Record, WatchEvent, watch_line
from partita_testcluster.apiserver.tables import table
from partita_testcluster.apiserver.writes import WriteOptions

__all__ = ["JSON", "LOG_QUERY", "MAX_BODY", "QUERY", "Form", "answer", "body_of", "check_query",
           "delete_options", "patch_kind", "write_options"]  # fmt: skip

JSON = "application/json"
MAX_BODY = 3 * 1024 * 1024  # bytes, kube-apiserver's limit of a request
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_PATCHES = {
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
}
_APPLY = "application/apply-patch+yaml"
QUERY = frozenset({
    "pretty", "timeout", "includeObject", "labelSelector", "fieldSelector", "resourceVersion",
    "limit", "continue", "watch", "allowWatchBookmarks", "timeoutSeconds",
    "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds",
    "propagationPolicy",
})  # fmt: skip
LOG_QUERY = frozenset({"container", "follow", "previous", "tailLines", "timestamps", "pretty"})
_POLICIES = ("Background", "Orphan")


def check_query(request: web.BaseRequest, known: frozenset[str]) -> None:
    """Reject unknown parameters, which would otherwise be ignored.

    Raises
    ------
    APIError
        400 with the names of the parameters.
    """
    if unknown := set(request.query) - known:
        raise bad_request(f"query parameter not supported here: {', '.join(sorted(unknown))}")


async def body_of(request: web.BaseRequest) -> Any:
    """Return the parsed body, `None` if it is empty.

    Raises
    ------
    APIError
        400 if it cannot be parsed, 413 if it is too large, 415 if its type is unknown.
    """
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as e:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise APIError(413, "RequestEntityTooLarge", message) from e
    kind = request.content_type
    if not data:
        return None
    if kind == _PROTOBUF:
        return protobuf.decode(data)
    if not any(word in kind for word in ("json", "octet-stream")):
        raise _unknown_format(kind, (JSON, _PROTOBUF))
    try:
        return orjson.loads(data)
    except ValueError as e:
        raise bad_request(f"the object provided is unrecognized: {e}") from e


def _unknown_format(kind: str, known: Sequence[str]) -> APIError:
    message = (
        f"the body of the request was in an unknown format ({kind}) - accepted media types "
        f"include: {', '.join(known)}"
    )
    return APIError(415, "UnsupportedMediaType", message)


def patch_kind(request: web.BaseRequest, resource: ServedResource) -> str:
    """Return the patch language of the body.

    Raises
    ------
    APIError
        415 if this kind or this server does not support it.
    """
    if request.content_type == _APPLY:
        message = "server-side apply is not supported here: leave out --server-side"
        raise APIError(415, "UnsupportedMediaType", message)
    kind = _PATCHES.get(request.content_type)
    if kind is None or (not resource.rules.builtin and kind == "strategic-merge-patch"):
        raise _unknown_format(request.content_type, list(_PATCHES))
    return kind


def write_options(request: web.BaseRequest) -> WriteOptions:
    """Read the query of a write.

    Raises
    ------
    APIError
        400 if it is malformed.
    """
    query = request.query
    return WriteOptions(
        dry_run=_dry_run(query.get("dryRun", "")), validation=query.get("fieldValidation", "Warn")
    )


def _dry_run(asked: str) -> bool:
    if asked not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{asked}": supported values: "All"')
    return bool(asked)


async def delete_options(request: web.BaseRequest) -> DeleteOptions:
    """Read the query and the body of a deletion.

    Raises
    ------
    APIError
        400 or 422 if they are malformed.
    """
    return parse_delete_options(await body_of(request) or {}, request.query)


def parse_delete_options(body: Mapping[str, Any], query: Mapping[str, str]) -> DeleteOptions:
    """Return the options of a deletion; the query takes precedence over the body.

    Raises
    ------
    APIError
        400 or 422 if they are malformed.
    """
    asked = {**body, "dryRun": "".join(body.get("dryRun") or ()), **query}
    grace, policy = asked.get("gracePeriodSeconds"), asked.get("propagationPolicy") or ""
    if policy and policy not in _POLICIES:
        detail = "supported values: " + ", ".join(f'"{p}"' for p in _POLICIES)
        problem = FieldError(("propagationPolicy",), "Unsupported value", detail, policy)
        raise invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    if grace is not None and not str(grace).isdecimal():
        raise bad_request(f"gracePeriodSeconds must be a number of seconds, not {grace!r}")
    return DeleteOptions(
        policy=policy,
        grace=None if grace is None else int(grace),
        uid=(body.get("preconditions") or {}).get("uid") or "",
        dry_run=_dry_run(asked["dryRun"]),
    )


def answer(value: Any, code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    """Return a response with a JSON value or its bytes, and warning headers (RFC 7234, 5.5)."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    response = web.Response(body=body, status=code, headers={"Content-Type": JSON})
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


class Form:
    """The form of objects in a response: unchanged, or as a `Table`."""

    def __init__(self, request: web.BaseRequest, resource: ServedResource) -> None:
        self._resource = resource
        self._as_table = _asks_for_table(request)
        self._include = request.query.get("includeObject", "Metadata")
        self._headers = True  # only the first table of a watch contains the columns

    def one(self, record: Record) -> bytes:
        """Return one object."""
        if self._as_table:
            return self._table([record], {"resourceVersion": str(record.rv)})
        return record.raw

    def many(self, page: Page) -> bytes:
        """Return a list of objects."""
        if self._as_table:
            return self._table(page.records, page.meta)
        kind, version = self._resource.list_kind, self._resource.api_version
        head = orjson.dumps({"kind": kind, "apiVersion": version, "metadata": page.meta})
        return head[:-1] + b',"items":[' + b",".join(r.raw for r in page.records) + b"]}"

    def event(self, event: WatchEvent) -> bytes:
        """Return a line of a watch."""
        if not self._as_table or event.type == "BOOKMARK":
            return event.line
        line = watch_line(event.type, self.one(event.record))
        self._headers = False
        return line

    def _table(self, records: Sequence[Record], meta: dict[str, Any]) -> bytes:
        objects, columns = [r.obj for r in records], self._resource.columns
        return orjson.dumps(
            table(columns, objects, meta, include=self._include, headers=self._headers)
        )


def _asks_for_table(request: web.BaseRequest) -> bool:
    for clause in request.headers.get("Accept", "").split(","):
        kind, *parameters = (p.strip() for p in clause.split(";"))
        wanted = dict(p.partition("=")[::2] for p in parameters)
        form = wanted.get("as", "")
        if not form and kind in (JSON, "*/*"):
            return False
        if form == "Table" and wanted.get("v") == "v1":
            return True
    return False
