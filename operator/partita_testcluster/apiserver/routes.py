"""Routing of requests to the verbs of the API by path and method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import orjson
from aiohttp import web

from partita_testcluster.apiserver import discovery, errors, reads
from partita_testcluster.apiserver.api import ServedAPI
from partita_testcluster.apiserver.deletions import delete
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.evictions import evict
from partita_testcluster.apiserver.messages import (
    JSON,
    LOG_QUERY,
    QUERY,
    Form,
    answer,
    body_of,
    check_query,
    delete_options,
    parse_delete_options,
    patch_kind,
    write_options,
)
from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.pod_logs import serve_log
from partita_testcluster.apiserver.resources import Target
from partita_testcluster.apiserver.store import WatchEvent, watch_line
from partita_testcluster.apiserver.subresources import bind, scale_of, scaled

__all__ = ["Routes"]

_Handler = Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]


class Routes:
    """Handles the requests to one API."""

    def __init__(self, api: ServedAPI) -> None:
        self._api = api
        self._verbs: dict[tuple[str, str], _Handler] = {
            ("GET", "collection"): self._list_or_watch,
            ("POST", "collection"): self._create,
            ("GET", "object"): self._get,
            ("PUT", "object"): self._update,
            ("PATCH", "object"): self._patch,
            ("DELETE", "object"): self._delete,
            ("GET", "status"): self._get,
            ("PUT", "status"): self._update,
            ("PATCH", "status"): self._patch,
            ("GET", "scale"): self._get_scale,
            ("PUT", "scale"): self._set_scale,
            ("PATCH", "scale"): self._set_scale,
            ("POST", "binding"): self._bind,
            ("POST", "eviction"): self._evict,
            ("GET", "log"): self._log,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request. Errors are returned as a `Status`."""
        try:
            match [p for p in request.path.split("/") if p]:
                case ["api", version, plural, *rest]:
                    target = self._target(request, "", version, [plural, *rest])
                case ["apis", group, version, plural, *rest]:
                    target = self._target(request, group, version, [plural, *rest])
                case parts:
                    return self._document(request, parts)
            return await self._dispatch(request, target)
        except APIError as e:
            return answer(e.status, e.code)

    def _document(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        if parts in (["healthz"], ["livez"], ["readyz"]):
            return web.Response(text="ok")
        protobuf = "openapi.spec.v2" in request.headers.get("Accept", "")
        if parts == ["openapi", "v2"] and protobuf and request.method == "GET":
            headers = {"Content-Type": discovery.OPENAPI_V2_TYPE}
            return web.Response(body=discovery.OPENAPI_V2, headers=headers)
        document = discovery.document(parts, self._api.groups(), self._api.generation)
        if request.method != "GET" or document is None:
            raise _no_route(request)
        return answer(document)

    def _target(
        self, request: web.BaseRequest, group: str, version: str, parts: list[str]
    ) -> Target:
        namespace = None
        of_namespace = not group and parts[2:] == ["status"]
        if parts[0] == "namespaces" and len(parts) > 2 and not of_namespace:
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource, *rest = [*parts, "", ""]
        resource = self._api.resource(group, version, plural)
        if (
            resource is None
            or any(rest)
            or (namespace is not None and not resource.namespaced)
            or (name and resource.namespaced and namespace is None)
            or (subresource and subresource not in resource.subresources)
        ):
            raise _no_route(request)
        return Target(resource, namespace, name, subresource)

    async def _dispatch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        place = target.subresource or ("object" if target.name else "collection")
        handler = self._verbs.get((request.method, place))
        if handler is None:
            message = "the server does not allow this method on the requested resource"
            raise APIError(405, "MethodNotAllowed", message)
        check_query(request, LOG_QUERY if place == "log" else QUERY)
        return await handler(request, target)

    # -- reads ----------------------------------------------------------------------------

    async def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        return answer(Form(request, target.resource).one(target.existing()))

    async def _list_or_watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource, form = target.resource, Form(request, target.resource)
        options = reads.ListOptions.parse(resource, request.query)
        if options.watch:
            interval = self._api.bookmark_interval
            changes = reads.watch(self._api.store, resource, target.namespace, options, interval)
            async with aclosing(changes):
                return await _stream(request, changes, form.event)
        return answer(form.many(reads.page(self._api.store, resource, target.namespace, options)))

    # -- writes ---------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        record = self._api.writer.create(target, await body_of(request), options)
        return answer(Form(request, target.resource).one(record), 201, options.warnings)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        record = self._api.writer.update(target, await body_of(request), options)
        return answer(Form(request, target.resource).one(record), 200, options.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        kind = patch_kind(request, target.resource)
        options = write_options(request)
        record = self._api.writer.patch(target, kind, await body_of(request), options)
        return answer(Form(request, target.resource).one(record), 200, options.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        record, gone = delete(self._api.store, target, await delete_options(request))
        group, plural = target.resource.group, target.resource.plural
        if not gone or plural == "pods":
            return answer(Form(request, target.resource).one(record))
        return answer(errors.success(group, plural, record.name, uid=record.uid))

    # -- subresources with a kind of their own --------------------------------------------

    async def _get_scale(self, _request: web.BaseRequest, target: Target) -> web.Response:
        return answer(scale_of(target.resource, target.existing().obj))

    async def _set_scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        options, body = write_options(request), await body_of(request)
        resource = target.resource
        kind = patch_kind(request, resource) if request.method == "PATCH" else ""
        changed = scaled(resource, target.existing().obj, kind, body)
        whole = Target(resource, target.namespace, target.name)
        record = self._api.writer.update(whole, changed, options)
        return answer(scale_of(resource, record.obj))

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        bind(self._api.store, target, await body_of(request), options)
        return answer(errors.success(), 201)

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = await body_of(request) or {}
        options = parse_delete_options(body.get("deleteOptions") or {}, request.query)
        budgets = self._api.resource("policy", "v1", "poddisruptionbudgets")
        found = budgets.collection.records(target.namespace) if budgets else []
        evict(self._api.store, target, [record.obj for record in found], options)
        return answer(errors.success(), 201)

    async def _log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        node = dig(target.existing().obj, "spec.nodeName") or ""
        nodes = self._api.resource("", "v1", "nodes")
        found = Target(nodes, name=node).record if nodes and node else None
        return await serve_log(request, target, found.obj if found else None)


async def _stream(
    request: web.BaseRequest,
    changes: AsyncGenerator[list[WatchEvent]],
    render: Callable[[WatchEvent], bytes],
) -> web.StreamResponse:
    """Send changes as lines until the watch ends or the client disconnects."""
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    try:
        # The headers are sent after the first changes, so that an error can still be a `Status`.
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
        return response
    await response.write_eof()
    return response


def _no_route(request: web.BaseRequest) -> APIError:
    message = (
        f"the server could not find the requested resource ({request.method} {request.path}; "
        "what the embedded server has is listed under /apis and /api/v1)"
    )
    return APIError(404, "NotFound", message)
