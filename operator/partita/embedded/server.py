"""The HTTP side: routes, content types and queries; what a request means is in `API`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml
from aiohttp import web

from partita.embedded import discovery, errors, protobuf
from partita.embedded.api import API
from partita.embedded.errors import APIError
from partita.embedded.reads import ListOptions
from partita.embedded.resources import Resource
from partita.embedded.scale import patch_scale, replace_scale, scale_of
from partita.embedded.store import Event, Record, watch_line
from partita.embedded.tables import partial, table
from partita.embedded.writes import DeleteOptions, WriteOptions

__all__ = ["EmbeddedAPIServer"]

_JSON = "application/json"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PATCHES = {
    "application/json-patch+json": "json-patch",
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
    "application/apply-patch+yaml": "apply-patch",
}
_READ_QUERY = frozenset({"pretty", "timeout"})
_LIST_QUERY = _READ_QUERY | {
    "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "limit",
    "continue", "watch", "allowWatchBookmarks", "timeoutSeconds", "sendInitialEvents",
}  # fmt: skip
_GET_QUERY = _READ_QUERY | {"resourceVersion"}
_WRITE_QUERY = _READ_QUERY | {"dryRun", "fieldManager", "fieldValidation"}
_DELETE_QUERY = _READ_QUERY | {
    "dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents",
}  # fmt: skip
_MAX_BODY = 3 * 1024 * 1024  # bytes, kube-apiserver's limit of a request


@dataclass(frozen=True, slots=True)
class _Target:
    """What a path of the resource API names."""

    resource: Resource
    namespace: str | None  # None: all, or cluster-scoped
    name: str
    subresource: str

    @property
    def space(self) -> str:
        return self.namespace or ""


class EmbeddedAPIServer:
    """A Kubernetes API server in this process, in memory.

    Parameters
    ----------
    host, port
        Where it listens; port 0 takes a free one.
    history_limit
        How many changes of each kind are kept for watches at least; who asks for older ones is
        told 410 Gone.

    Examples
    --------
    >>> async with EmbeddedAPIServer() as server:  # doctest: +SKIP
    ...     print(server.url)
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, history_limit: int = 10_000
    ) -> None:
        self._host = host
        self._port = port
        self._history_limit = history_limit
        self._api: API
        self._runner: web.ServerRunner
        self._collector: asyncio.Task[None]

    async def __aenter__(self) -> EmbeddedAPIServer:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start to serve.

        Raises
        ------
        OSError
            The port is taken.
        """
        self._api = API(self._history_limit)
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._collector = asyncio.create_task(self._api.collector.run())

    async def stop(self) -> None:
        """End all watches and stop to serve."""
        for resource in self._api.resources():
            resource.collection.close()
        self._collector.cancel()
        await asyncio.wait({self._collector})
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{self._host}:{self._port}"

    def kubeconfig(self) -> dict[str, Any]:
        """Return a kubeconfig whose cluster and context are named ``partita-embedded``."""
        name = "partita-embedded"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }

    # -- requests -------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except APIError as e:
            return _json(e.status, e.code)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = [p for p in request.path.split("/") if p]
        if len(parts) >= 3 and parts[0] == "api":
            return await self._resource_request(request, "", parts[1], parts[2:])
        if len(parts) >= 4 and parts[0] == "apis":
            return await self._resource_request(request, parts[1], parts[2], parts[3:])
        if request.method != "GET":
            raise _no_route(request)
        document = self._document(parts, request.headers.get("Accept", ""))
        if document is None:
            raise _no_route(request)
        return document

    def _document(self, parts: list[str], accept: str) -> web.Response | None:
        """Return what is served besides objects."""
        groups: dict[str, dict[str, list[Resource]]] = {}
        for r in self._api.resources():
            groups.setdefault(r.group, {}).setdefault(r.version, []).append(r)
        core = groups.pop("")
        wants_all = "as=APIGroupDiscoveryList" in accept and "v=v2" in accept
        match parts:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(discovery.VERSION)
            case ["api"] if wants_all:
                return _json(discovery.aggregated({"": core}), content_type=_DISCOVERY)
            case ["apis"] if wants_all:
                return _json(discovery.aggregated(groups), content_type=_DISCOVERY)
            case ["api"]:
                return _json({"kind": "APIVersions", "versions": list(core),
                              "serverAddressByClientCIDRs": []})  # fmt: skip
            case ["apis"]:
                return _json(discovery.group_list(discovery.group(n, v) for n, v in groups.items()))
            case ["api", version] if version in core:
                return _json(discovery.resource_list(version, core[version]))
            case ["apis", name] if name in groups:
                return _json(discovery.group(name, groups[name]))
            case ["apis", name, version] if version in groups.get(name, {}):
                listed = discovery.resource_list(f"{name}/{version}", groups[name][version])
                return _json(listed)
            case ["openapi", "v3"]:
                index = discovery.openapi_index(self._api.resources(), self._api.generation)
                return _json(index)
            case ["openapi", "v3", "api", version] if version in core:
                return _json(discovery.openapi(core[version]))
            case ["openapi", "v3", "apis", name, version] if version in groups.get(name, {}):
                return _json(discovery.openapi(groups[name][version]))
        return None

    async def _resource_request(
        self, request: web.BaseRequest, group: str, version: str, parts: list[str]
    ) -> web.StreamResponse:
        target = self._target(request, group, version, parts)
        verb = (request.method, "named" if target.name else "all")
        if target.subresource:
            return await self._subresource_request(request, target)
        match verb:
            case ("GET", "named"):
                return self._get(request, target)
            case ("GET", "all"):
                return await self._list_or_watch(request, target)
            case ("POST", "all"):
                return await self._create(request, target)
            case ("PUT", "named"):
                return await self._update(request, target)
            case ("PATCH", "named"):
                return await self._patch(request, target)
            case ("DELETE", "named"):
                return await self._delete(request, target)
            case ("DELETE", "all"):
                return await self._delete_all(request, target)
        raise APIError(405, "MethodNotAllowed",
                       "the server does not allow this method on the requested resource")  # fmt: skip

    def _target(
        self, request: web.BaseRequest, group: str, version: str, parts: list[str]
    ) -> _Target:
        namespace = None
        if (
            parts[0] == "namespaces"
            and len(parts) > 2
            and (group or parts[2] not in ("status", "finalize"))
        ):
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource, *rest = [*parts, "", ""]
        resource = self._api.resource(group, version, plural)
        if resource is None or any(rest) or (namespace is not None) > resource.namespaced:
            raise _no_route(request)
        if subresource and subresource not in resource.subresources:
            raise _no_route(request)
        if name and resource.namespaced and namespace is None:
            raise _no_route(request)
        return _Target(resource, namespace, name, subresource)

    # -- verbs ----------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest, target: _Target) -> web.Response:
        _check_query(request, _GET_QUERY)
        return self._answer(request, target, self._existing(target))

    def _existing(self, target: _Target) -> Record:
        return self._api.writer.existing(target.resource, target.space, target.name)

    async def _list_or_watch(self, request: web.BaseRequest, target: _Target) -> web.StreamResponse:
        _check_query(request, _LIST_QUERY)
        options = ListOptions.parse(target.resource, request.query)
        if options.watch:
            return await self._watch(request, target, options)
        page = self._api.reader.list(target.resource, target.namespace, options)
        form = _form(request)
        if form == "Table":
            objects = [r.obj for r in page.records]
            include = request.query.get("includeObject", "Metadata")
            return _json(table(target.resource.columns, objects, page.meta, include=include))
        kind, version = target.resource.list_kind, target.resource.api_version
        items = [r.raw for r in page.records]
        if form == "PartialObjectMetadata":
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            items = [orjson.dumps(partial(r.obj)) for r in page.records]
        head = orjson.dumps({"kind": kind, "apiVersion": version, "metadata": page.meta})
        body = head[:-1] + b',"items":[' + b",".join(items) + b"]}"
        return web.Response(body=body, content_type=_JSON)

    async def _watch(
        self, request: web.BaseRequest, target: _Target, options: ListOptions
    ) -> web.StreamResponse:
        render = self._renderer(request, target.resource)
        changes = self._api.reader.watch(target.resource, target.namespace, options)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        try:
            # The first answer comes before the headers, so that an error can still be a status.
            events = await anext(changes, None)
            await response.prepare(request)
            while events is not None:
                if events:
                    await response.write(b"".join(map(render, events)))
                events = await anext(changes, None)
        except APIError as e:
            if e.code != 410:
                raise
            await response.prepare(request)
            await response.write(watch_line("ERROR", orjson.dumps(e.status)))
        except ConnectionError:
            return response  # the watcher has gone
        await response.write_eof()
        return response

    def _renderer(self, request: web.BaseRequest, resource: Resource) -> Callable[[Event], bytes]:
        form = _form(request)
        if not form:
            return lambda event: event.line
        include = request.query.get("includeObject", "Metadata")
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

    async def _create(self, request: web.BaseRequest, target: _Target) -> web.Response:
        options = _write_options(request)
        body = await _body(request)
        record = self._api.writer.create(target.resource, target.space, body, options)
        return self._answer(request, target, record, 201, options)

    async def _update(self, request: web.BaseRequest, target: _Target) -> web.Response:
        options = _write_options(request)
        body = await _body(request)
        record = self._api.writer.update(
            target.resource, target.space, target.name, body, options, target.subresource
        )
        return self._answer(request, target, record, 200, options)

    async def _patch(self, request: web.BaseRequest, target: _Target) -> web.Response:
        kind = self._patch_kind(request, target.resource)
        options = _write_options(request, apply=kind == "apply-patch")
        body = await _body(request)
        record, created = self._api.writer.patch(
            target.resource, target.space, target.name, kind, body, options, target.subresource
        )
        return self._answer(request, target, record, 201 if created else 200, options)

    @staticmethod
    def _patch_kind(request: web.BaseRequest, resource: Resource) -> str:
        known = {
            t: k for t, k in _PATCHES.items()
            if not (resource.custom and k == "strategic-merge-patch")
        }  # fmt: skip
        kind = known.get(request.content_type)
        if kind is None:
            raise APIError(415, "UnsupportedMediaType", (
                "the body of the request was in an unknown format - accepted media types "
                f"include: {', '.join(known)}"))  # fmt: skip
        return kind

    async def _delete(self, request: web.BaseRequest, target: _Target) -> web.Response:
        options = await _delete_options(request, _DELETE_QUERY)
        record, gone = self._api.writer.delete(target.resource, target.space, target.name, options)
        if not gone or target.resource.plural == "pods":
            return self._answer(request, target, record)
        resource = target.resource
        return _json(errors.success(resource.group, resource.plural, record.name, record.uid))

    async def _delete_all(self, request: web.BaseRequest, target: _Target) -> web.Response:
        options = await _delete_options(request, _DELETE_QUERY | _LIST_QUERY)
        selection = ListOptions.parse(target.resource, request.query)
        page = self._api.reader.list(target.resource, target.namespace, selection)
        deleted = [
            self._api.writer.delete(target.resource, r.namespace, r.name, options)[0].raw
            for r in page.records
        ]
        head = orjson.dumps({"kind": target.resource.list_kind, "metadata": page.meta,
                             "apiVersion": target.resource.api_version})  # fmt: skip
        body = head[:-1] + b',"items":[' + b",".join(deleted) + b"]}"
        return web.Response(body=body, content_type=_JSON)

    async def _subresource_request(
        self, request: web.BaseRequest, target: _Target
    ) -> web.StreamResponse:
        match (target.subresource, request.method):
            case ("status", "GET"):
                return self._get(request, target)
            case ("status", "PUT"):
                return await self._update(request, target)
            case ("status", "PATCH"):
                return await self._patch(request, target)
            case ("scale", "GET"):
                _check_query(request, _GET_QUERY)
                return _json(scale_of(target.resource, self._existing(target).obj))
            case ("scale", "PUT" | "PATCH"):
                return await self._scale(request, target)
            case ("binding", "POST"):
                options = _write_options(request)
                body = await _body(request)
                self._api.writer.bind(target.resource, target.space, target.name, body, options)
                return _json({"kind": "Status", "apiVersion": "v1", "metadata": {},
                              "status": "Success", "code": 201}, 201)  # fmt: skip
        raise APIError(405, "MethodNotAllowed",
                       "the server does not allow this method on the requested resource")  # fmt: skip

    async def _scale(self, request: web.BaseRequest, target: _Target) -> web.Response:
        options = _write_options(request)
        body = await _body(request)
        record = self._existing(target)
        if request.method == "PATCH":
            kind = self._patch_kind(request, target.resource)
            wanted = patch_scale(target.resource, record.obj, kind, body)
        else:
            wanted = body
        changed = replace_scale(target.resource, record.obj, wanted)
        record = self._api.writer.update(
            target.resource, target.space, target.name, changed, options
        )
        return _json(scale_of(target.resource, record.obj))

    def _answer(
        self,
        request: web.BaseRequest,
        target: _Target,
        record: Record,
        code: int = 200,
        options: WriteOptions | None = None,
    ) -> web.Response:
        warnings = [f'299 - "{_quoted(w)}"' for w in (options.warnings if options else ())]
        form = _form(request)
        body = record.raw
        if form == "Table":
            meta = {"resourceVersion": str(record.rv)}
            include = request.query.get("includeObject", "Metadata")
            shown = table(target.resource.columns, [record.obj], meta, include=include)
            body = orjson.dumps(shown)
        elif form:
            body = orjson.dumps(partial(record.obj))
        response = web.Response(body=body, status=code, content_type=_JSON)
        for warning in warnings:
            response.headers.add("Warning", warning)
        return response


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _json(value: Any, code: int = 200, content_type: str = _JSON) -> web.Response:
    headers = {"Content-Type": content_type}
    return web.Response(body=orjson.dumps(value), status=code, headers=headers)


def _no_route(request: web.BaseRequest) -> APIError:
    return APIError(404, "NotFound", (
        f"the server could not find the requested resource ({request.method} {request.path}; "
        "the embedded server serves what /apis and /api/v1 list)"))  # fmt: skip


def _form(request: web.BaseRequest) -> str:
    """Return in which form the client wants objects, "" for as they are."""
    for clause in request.headers.get("Accept", "").split(","):
        kind, *parameters = (p.strip() for p in clause.split(";"))
        wanted = dict(p.partition("=")[::2] for p in parameters)
        form = wanted.get("as", "").removesuffix("List")
        if not form and kind in (_JSON, "*/*"):
            return ""
        if form in ("Table", "PartialObjectMetadata") and wanted.get("v") == "v1":
            return form
    return ""


def _check_query(request: web.BaseRequest, known: frozenset[str]) -> None:
    unknown = set(request.query) - known - {"includeObject"}
    if unknown:
        raise errors.bad_request(
            f"query parameter not supported here: {', '.join(sorted(unknown))} "
            f"(known: {', '.join(sorted(known))})"
        )


async def _body(request: web.BaseRequest) -> Any:
    data = await request.read()
    if len(data) > _MAX_BODY:
        raise APIError(
            413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}"
        )
    if not data:
        return None
    kind = request.content_type
    if "yaml" in kind:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            return _yaml(data)
    if kind == "application/vnd.kubernetes.protobuf":
        return protobuf.decode(data)
    if "json" not in kind and kind != "application/octet-stream":
        raise APIError(415, "UnsupportedMediaType", (
            f"the body of the request was in an unknown format ({kind}) - accepted media types "
            "include: application/json, application/yaml"))  # fmt: skip
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise errors.bad_request(f"the object provided is unrecognized: {e}") from e


def _yaml(data: bytes) -> Any:
    try:
        # Through JSON, so that times are text as in any request.
        return orjson.loads(orjson.dumps(yaml.safe_load(data)))
    except (yaml.YAMLError, orjson.JSONEncodeError) as e:
        raise errors.bad_request(f"error parsing YAML: {e}") from e


def _write_options(request: web.BaseRequest, *, apply: bool = False) -> WriteOptions:
    _check_query(request, _WRITE_QUERY | {"force"} if apply else _WRITE_QUERY)
    query = request.query
    manager = query.get("fieldManager", "")
    if apply and not manager:
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [errors.FieldError(
            ("fieldManager",), "Required value", "is required for apply patch")])  # fmt: skip
    validation = query.get("fieldValidation", "Warn")
    if validation not in ("Strict", "Warn", "Ignore"):
        raise errors.invalid("meta.k8s.io", "CreateOptions", "", [errors.FieldError(
            ("fieldValidation",), "Unsupported value",
            'supported values: "Ignore", "Strict", "Warn"', validation)])  # fmt: skip
    return WriteOptions(
        manager=manager or request.headers.get("User-Agent", "unknown").partition("/")[0][:128],
        dry_run=_dry_run(query),
        validation=validation,
        force=query.get("force") in ("1", "true", "True"),
    )


def _dry_run(query: Mapping[str, str]) -> bool:
    if (value := query.get("dryRun", "")) not in ("", "All"):
        raise errors.bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
    return bool(value)


async def _delete_options(request: web.BaseRequest, known: frozenset[str]) -> DeleteOptions:
    _check_query(request, known)
    body = await _body(request) or {}
    query = request.query
    grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    policy = query.get("propagationPolicy", body.get("propagationPolicy", ""))
    orphan = query.get("orphanDependents", body.get("orphanDependents"))
    if orphan is not None and not policy:
        policy = "Orphan" if orphan in (True, "true", "1") else "Background"
    if policy not in ("", "Foreground", "Background", "Orphan"):
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [errors.FieldError(
            ("propagationPolicy",), "Unsupported value",
            'supported values: "Foreground", "Background", "Orphan", "nil"', policy)])  # fmt: skip
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        policy=policy,
        grace=None if grace is None else int(grace),
        uid=preconditions.get("uid", ""),
        resource_version=preconditions.get("resourceVersion", ""),
        dry_run=_dry_run(query) or body.get("dryRun") == ["All"],
    )
