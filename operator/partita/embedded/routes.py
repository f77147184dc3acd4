"""From a path and a method to the verb of the API it means."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import orjson
from aiohttp import web

from partita.embedded import discovery, errors
from partita.embedded.answers import (
    list_answer,
    listed,
    object_answer,
    renderer,
    value_answer,
)
from partita.embedded.api import API
from partita.embedded.errors import APIError
from partita.embedded.reads import ListOptions
from partita.embedded.requests import (
    DELETE_QUERY,
    GET_QUERY,
    JSON,
    LIST_QUERY,
    body_of,
    check_query,
    delete_options,
    patch_kind,
    write_options,
)
from partita.embedded.resources import Target
from partita.embedded.store import Event, watch_line
from partita.embedded.subresources import bind, patch_scale, replace_scale, scale_of

__all__ = ["Routes"]

_Handler = Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]


class Routes:
    """Answers the requests to one API."""

    def __init__(self, api: API) -> None:
        self._api = api
        self._verbs: dict[tuple[str, str], _Handler] = {
            ("GET", "collection"): self._list_or_watch,
            ("POST", "collection"): self._create,
            ("DELETE", "collection"): self._delete_all,
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
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; what is wrong with it becomes a `Status`."""
        try:
            return await self._route(request)
        except APIError as e:
            return value_answer(e.status, e.code)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = [p for p in request.path.split("/") if p]
        if parts[:1] == ["api"] and len(parts) > 2:
            return await self._dispatch(request, self._target(request, "", parts[1], parts[2:]))
        if parts[:1] == ["apis"] and len(parts) > 3:
            group, version, *rest = parts[1:]
            return await self._dispatch(request, self._target(request, group, version, rest))
        if request.method != "GET":
            raise _no_route(request)
        return self._document(request, parts)

    def _document(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        if parts in (["healthz"], ["livez"], ["readyz"]):
            return web.Response(text="ok")
        groups = self._api.groups()
        accept = request.headers.get("Accept", "")
        if len(parts) == 1 and discovery.wants_aggregated(accept):
            wanted = {n: v for n, v in groups.items() if parts == [("apis" if n else "api")]}
            return value_answer(discovery.aggregated(wanted), content_type=discovery.AGGREGATED)
        document = discovery.document(parts, groups, self._api.generation)
        if document is None:
            raise _no_route(request)
        return value_answer(document)

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
        return await handler(request, target)

    # -- reads ----------------------------------------------------------------------------

    async def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        check_query(request, GET_QUERY)
        return object_answer(request, target.resource, target.existing())

    async def _list_or_watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        check_query(request, LIST_QUERY)
        options = ListOptions.parse(target.resource, request.query)
        if options.watch:
            changes = self._api.reader.watch(target.resource, target.namespace, options)
            async with aclosing(changes):
                return await _stream(request, changes, renderer(request, target.resource))
        page = self._api.reader.page(target.resource, target.namespace, options)
        return list_answer(request, target.resource, page)

    # -- writes ---------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        record = self._api.writer.create(target, await body_of(request), options)
        return object_answer(request, target.resource, record, 201, options.warnings)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        record = self._api.writer.update(target, await body_of(request), options)
        return object_answer(request, target.resource, record, 200, options.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        kind = patch_kind(request, target.resource)
        options = write_options(request, apply=kind == "apply-patch")
        body = await body_of(request)
        record, created = self._api.writer.patch(target, kind, body, options)
        code = 201 if created else 200
        return object_answer(request, target.resource, record, code, options.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        check_query(request, DELETE_QUERY)
        options = await delete_options(request)
        record, gone = self._api.deleter.delete(target, options)
        resource = target.resource
        if not gone or resource.plural == "pods":
            return object_answer(request, resource, record)
        done = errors.success(resource.group, resource.plural, record.name, record.uid)
        return value_answer(done)

    async def _delete_all(self, request: web.BaseRequest, target: Target) -> web.Response:
        check_query(request, DELETE_QUERY | LIST_QUERY)
        options = await delete_options(request)
        resource = target.resource
        selection = ListOptions.parse(resource, request.query)
        page = self._api.reader.page(resource, target.namespace, selection)
        deleted = [
            self._api.deleter.delete(Target(resource, r.namespace, r.name), options)[0].raw
            for r in page.records
        ]
        return listed(resource.list_kind, resource.api_version, page.meta, deleted)

    # -- subresources with a kind of their own --------------------------------------------

    async def _get_scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        check_query(request, GET_QUERY)
        return value_answer(scale_of(target.resource, target.existing().obj))

    async def _set_scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        body = await body_of(request)
        obj = target.existing().obj
        if request.method == "PATCH":
            body = patch_scale(target.resource, obj, patch_kind(request, target.resource), body)
        changed = replace_scale(target.resource, obj, body)
        whole = Target(target.resource, target.namespace, target.name)
        record = self._api.writer.update(whole, changed, options)
        return value_answer(scale_of(target.resource, record.obj))

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = write_options(request)
        bind(self._api.writer, target, await body_of(request), options)
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return value_answer(done | {"code": 201}, 201)


async def _stream(
    request: web.BaseRequest,
    changes: AsyncGenerator[list[Event]],
    render: Callable[[Event], bytes],
) -> web.StreamResponse:
    """Send changes, a line each, as long as they come and somebody listens."""
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    try:
        # The headers are sent after the first answer, so that an error can still be a status.
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
