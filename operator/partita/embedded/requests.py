"""What a request asks: its body, its query, the form in which it wants objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import yaml
from aiohttp import web

from partita.embedded import protobuf
from partita.embedded.deletions import DeleteOptions
from partita.embedded.errors import APIError, FieldError, bad_request, invalid
from partita.embedded.resources import Resource
from partita.embedded.writes import WriteOptions

__all__ = [
    "DELETE_QUERY",
    "GET_QUERY",
    "JSON",
    "LIST_QUERY",
    "MAX_BODY",
    "body_of",
    "check_query",
    "delete_options",
    "form_of",
    "patch_kind",
    "write_options",
]

JSON = "application/json"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_PATCHES = {
    "application/json-patch+json": "json-patch",
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
    "application/apply-patch+yaml": "apply-patch",
}
_ANY_QUERY = frozenset({"pretty", "timeout", "includeObject"})
GET_QUERY = _ANY_QUERY | {"resourceVersion"}
LIST_QUERY = _ANY_QUERY | {
    "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "limit",
    "continue", "watch", "allowWatchBookmarks", "timeoutSeconds", "sendInitialEvents",
}  # fmt: skip
_WRITE_QUERY = _ANY_QUERY | {"dryRun", "fieldManager", "fieldValidation"}
DELETE_QUERY = _ANY_QUERY | {
    "dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents",
}  # fmt: skip
_POLICIES = ("Foreground", "Background", "Orphan")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})  # Go's strconv.ParseBool
MAX_BODY = 3 * 1024 * 1024  # bytes, kube-apiserver's limit of a request


def check_query(request: web.BaseRequest, known: frozenset[str]) -> None:
    """Refuse a parameter that would be silently ignored.

    Raises
    ------
    APIError
        400 that names the parameter and those known.
    """
    if unknown := set(request.query) - known:
        raise bad_request(
            f"query parameter not supported here: {', '.join(sorted(unknown))} "
            f"(known: {', '.join(sorted(known))})"
        )


def form_of(request: web.BaseRequest) -> str:
    """Return ``Table`` or ``PartialObjectMetadata`` if asked for, "" for objects as they are."""
    for clause in request.headers.get("Accept", "").split(","):
        kind, *parameters = (p.strip() for p in clause.split(";"))
        wanted = dict(p.partition("=")[::2] for p in parameters)
        form = wanted.get("as", "").removesuffix("List")
        if not form and kind in (JSON, "*/*"):
            return ""
        if form in ("Table", "PartialObjectMetadata") and wanted.get("v") == "v1":
            return form
    return ""


async def body_of(request: web.BaseRequest) -> Any:
    """Return the parsed body, `None` if it is empty.

    Raises
    ------
    APIError
        400 where it cannot be parsed, 413 where it is too large, 415 where its type is unknown.
    """
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as e:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise APIError(413, "RequestEntityTooLarge", message) from e
    if not data:
        return None
    kind = request.content_type
    if kind == _PROTOBUF:
        return protobuf.decode(data)
    if not any(word in kind for word in ("json", "yaml", "octet-stream")):
        message = (
            f"the body of the request was in an unknown format ({kind}) - accepted media types "
            f"include: {JSON}, application/yaml, {_PROTOBUF}"
        )
        raise APIError(415, "UnsupportedMediaType", message)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        if "yaml" in kind:
            return _yaml(data)
        raise bad_request(f"the object provided is unrecognized: {e}") from e


def _yaml(data: bytes) -> Any:
    try:
        # Through JSON, so that times are text as in any request.
        return orjson.loads(orjson.dumps(yaml.safe_load(data)))
    except (yaml.YAMLError, orjson.JSONEncodeError) as e:
        raise bad_request(f"error parsing YAML: {e}") from e


def patch_kind(request: web.BaseRequest, resource: Resource) -> str:
    """Return which of the patch languages the body is in.

    Raises
    ------
    APIError
        415 for one that this kind does not take.
    """
    known = dict(_PATCHES)
    if resource.custom:
        del known["application/strategic-merge-patch+json"]
    kind = known.get(request.content_type)
    if kind is None:
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(known)
        )
        raise APIError(415, "UnsupportedMediaType", message)
    return kind


def write_options(request: web.BaseRequest, *, apply: bool = False) -> WriteOptions:
    """Read the query of a write.

    Raises
    ------
    APIError
        400 or 422 where it is malformed.
    """
    check_query(request, _WRITE_QUERY | {"force"} if apply else _WRITE_QUERY)
    query = request.query
    manager = query.get("fieldManager", "")
    if apply and not manager:
        problem = FieldError(("fieldManager",), "Required value", "is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [problem])
    validation = query.get("fieldValidation", "Warn")
    if validation not in ("Ignore", "Strict", "Warn"):
        detail = 'supported values: "Ignore", "Strict", "Warn"'
        problem = FieldError(("fieldValidation",), "Unsupported value", detail, validation)
        raise invalid("meta.k8s.io", "CreateOptions", "", [problem])
    agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
    return WriteOptions(
        manager=manager or agent[:128],
        dry_run=_dry_run(query),
        validation=validation,
        force=query.get("force") in _TRUE,
    )


def _dry_run(query: Mapping[str, str]) -> bool:
    if (value := query.get("dryRun", "")) not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
    return bool(value)


async def delete_options(request: web.BaseRequest) -> DeleteOptions:
    """Read the query and the body of a deletion.

    Raises
    ------
    APIError
        400 or 422 where they are malformed.
    """
    body = await body_of(request) or {}
    asked = body | dict(request.query)
    grace = asked.get("gracePeriodSeconds")
    policy = asked.get("propagationPolicy") or ""
    orphan = asked.get("orphanDependents")
    if orphan is not None and not policy:
        policy = "Orphan" if orphan is True or orphan in _TRUE else "Background"
    if policy and policy not in _POLICIES:
        detail = "supported values: " + ", ".join(f'"{p}"' for p in _POLICIES)
        problem = FieldError(("propagationPolicy",), "Unsupported value", detail, policy)
        raise invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    if grace is not None and not str(grace).isdecimal():
        raise bad_request(f"gracePeriodSeconds must be a number of seconds, not {grace!r}")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        policy=policy,
        grace=None if grace is None else int(grace),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=_dry_run(request.query) or body.get("dryRun") == ["All"],
    )
