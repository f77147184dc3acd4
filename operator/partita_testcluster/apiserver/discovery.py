"""Discovery documents: API groups, resources, OpenAPI v3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from partita.validation.builtin_schemas import schemas as builtin_schemas
from partita_testcluster.apiserver.resources import ServedResource

__all__ = ["OPENAPI_V2", "OPENAPI_V2_TYPE", "document"]

Groups = dict[str, dict[str, list[ServedResource]]]
"""The kinds by group ("" is the core group) and version."""

# The version of Kubernetes with which the conformance suite compares this server.
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3+partita-embedded",
           "platform": "python/embedded"}  # fmt: skip
_VERBS = ["delete", "get", "list", "patch", "create", "update", "watch"]
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

OPENAPI_V2 = b"\x0a\x032.0"
"""A Swagger 2.0 document that describes no kind, in protobuf (field 1 of `Document` in gnostic's
OpenAPIv2.proto is the version). kubectl reads it before it sends a list's objects one by one.
kubectl does not validate kinds that the document lacks; the server validates the objects."""
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Its media type (kube-openapi, `handler.go`). kubectl requests it with an @ that is not allowed in
media types, and rejects that @ in a response."""


def document(parts: list[str], groups: Groups, stamp: int) -> dict[str, Any] | None:
    """Return the document at a path, or `None` if it does not exist.

    Parameters
    ----------
    parts
        The path, split at its slashes.
    stamp
        A number that changes when the served kinds change.
    """
    found: dict[str, Any] | None = None
    match parts:
        case ["version"]:
            found = _VERSION
        case ["api"]:
            found = {"kind": "APIVersions", "versions": list(groups[""]),
                     "serverAddressByClientCIDRs": []}  # fmt: skip
        case ["apis"]:
            found = _group_list(_group(n, v) for n, v in groups.items() if n)
        case ["apis", name] if name in groups:
            found = _group(name, groups[name])
        case ["openapi", "v3"]:
            found = _openapi_index(groups, stamp)
        case ["openapi", "v3", *rest]:
            if resources := _of_version(rest, groups):
                found = _openapi(resources)
        case _:
            if resources := _of_version(parts, groups):
                found = _resource_list(resources)
    return found


def _of_version(parts: list[str], groups: Groups) -> list[ServedResource] | None:
    match parts:
        case ["api", version]:
            return groups[""].get(version)
        case ["apis", name, version]:
            return groups.get(name, {}).get(version)
        case _:
            return None


def _subresources(resource: ServedResource) -> list[tuple[str, list[str], dict[str, str]]]:
    """Return the subresources with their verbs and kinds."""
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    known = {
        "status": (["get", "patch", "update"], own),
        "scale": (["get", "patch", "update"], _SCALE),
        "log": (["get"], own),
        "binding": (["create"], {"group": "", "version": "v1", "kind": "Binding"}),
        "eviction": (["create"], {"group": "policy", "version": "v1", "kind": "Eviction"}),
    }
    return [(name, *known[name]) for name in sorted(resource.subresources)]


def _resource_list(resources: list[ServedResource]) -> dict[str, Any]:
    """Return the `APIResourceList` of one group version."""
    entries: list[dict[str, Any]] = []
    for r in resources:
        entry: dict[str, Any] = {
            "name": r.plural, "singularName": r.singular, "namespaced": r.namespaced,
            "kind": r.kind, "verbs": _VERBS, "storageVersionHash": "",
        }  # fmt: skip
        if r.short_names:
            entry["shortNames"] = list(r.short_names)
        if r.categories:
            entry["categories"] = list(r.categories)
        entries.append(entry)
        for name, verbs, speaks in _subresources(r):
            sub = {"name": f"{r.plural}/{name}", "singularName": "", "namespaced": r.namespaced,
                   "kind": speaks["kind"], "verbs": verbs}  # fmt: skip
            if (speaks["group"], speaks["version"]) != (r.group, r.version):
                sub |= {"group": speaks["group"], "version": speaks["version"]}
            entries.append(sub)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": resources[0].api_version,
            "resources": entries}  # fmt: skip


def _group(name: str, versions: Iterable[str]) -> dict[str, Any]:
    """Return the `APIGroup` of a named group."""
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": entries,
            "preferredVersion": entries[0]}  # fmt: skip


def _group_list(groups: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the `APIGroupList`."""
    bare = [{k: v for k, v in g.items() if k not in ("kind", "apiVersion")} for g in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": bare}


def _openapi_index(groups: Groups, stamp: int) -> dict[str, Any]:
    """Return the URLs of the OpenAPI documents of all group versions."""
    found = [f"apis/{n}/{v}" if n else f"api/{v}" for n, vs in groups.items() for v in vs]
    return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash={stamp}"} for p in found}}


def _openapi(resources: Iterable[ServedResource]) -> dict[str, Any]:
    """Return the OpenAPI v3 document of one group version."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    models = builtin_schemas()
    for r in resources:
        gvk = {"group": r.group, "version": r.version, "kind": r.kind}
        name = ".".join([*reversed((r.group or "core").split(".")), r.version, r.kind])
        raw = dict(r.rules.schema.raw)
        raw["x-kubernetes-group-version-kind"] = [gvk]
        raw["properties"] = dict(raw["properties"])
        raw["properties"]["metadata"] = _ref(_OBJECT_META)
        schemas[name] = raw
        paths |= _paths(r, gvk, name)
    pending = [_OBJECT_META, *_references(schemas)]
    while pending:
        model = pending.pop()
        if model not in schemas:
            schemas[model] = models[model]
            pending += _references(schemas[model])
    return {"openapi": "3.0.0", "info": {"title": "Partita embedded", "version": "v1"},
            "paths": paths, "components": {"schemas": schemas}}  # fmt: skip


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [n for v in value.values() for n in _references(v)]
    if isinstance(value, list):
        return [n for v in value for n in _references(v)]
    return []


def _paths(r: ServedResource, gvk: dict[str, str], name: str) -> dict[str, Any]:
    """Return the operations, in which kubectl looks up the supported query parameters."""
    base = f"/apis/{r.api_version}" if r.group else f"/api/{r.version}"
    if r.namespaced:
        base += "/namespaces/{namespace}"
    url = f"{base}/{r.plural}"
    writing = [
        {"name": n, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for n in ("dryRun", "fieldManager", "fieldValidation")
    ]
    body = {"content": {"application/json": {"schema": _ref(name)}}}

    def operation(action: str, *, write: bool) -> dict[str, Any]:
        out: dict[str, Any] = {
            "operationId": f"{action}{r.kind}",
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "responses": {"200": {"description": "OK", **body}},
        }
        if write:
            out["parameters"] = writing
            out["requestBody"] = body
        return out

    named = {
        "get": operation("get", write=False),
        "put": operation("put", write=True),
        "patch": operation("patch", write=True),
    }
    subresources = {f"{url}/{{name}}/{sub}": named for sub in sorted(r.subresources & {"status"})}
    return subresources | {
        url: {"get": operation("list", write=False), "post": operation("post", write=True)},
        f"{url}/{{name}}": named | {"delete": operation("delete", write=False)},
    }
