"""Calls and watches over a connection that fails in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from partita_testcluster.nodes.api import ApiError, APIServer

PODS = "/api/v1/pods"
Step = Callable[[web.Request], Any]


class Script:
    """A server that answers the n-th request by the n-th step, and any more like the last."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.requests: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(request)
        return await step(request)


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
async def api(script: Script) -> AsyncIterator[APIServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", script.answer)
    async with TestServer(application) as server:
        api = APIServer(Configuration(host=str(server.make_url("")).rstrip("/")))
        yield api
        await api.close()


def answer(status: int = 200, **body: Any) -> Step:
    async def step(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return step


def text(status: int, content: str) -> Step:
    async def step(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=content)

    return step


async def cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def listing(version: str, *names: str) -> Step:
    return answer(metadata={"resourceVersion": version}, items=[pod(n, "1") for n in names])


def pod(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": version}}


def events(*lines: tuple[str, dict[str, Any]] | str, end: str = "close") -> Step:
    """A watch that sends these events and then ends, stays open or breaks off."""

    async def step(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            out = line if isinstance(line, str) else json.dumps(_event(*line)) + "\n"
            await response.write(out.encode())
        if end == "abort":
            return await cut(request)
        if end == "open":
            await asyncio.Event().wait()
        return response

    return step


def _event(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": body}


class Followed:
    """What a follower was told, in order; the test waits until it is all there."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._news = asyncio.Event()

    def on_event(self, kind: str, body: dict[str, Any]) -> None:
        self.seen.append((kind, body["metadata"]["name"]))
        self._news.set()

    async def until(self, api: APIServer, expected: list[Any]) -> None:
        task = asyncio.create_task(api.follow(PODS, self.on_event, asyncio.Event()))
        async with asyncio.timeout(20):
            while len(self.seen) < len(expected) and not task.done():
                self._news.clear()
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait({task, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        task.cancel()
        await asyncio.wait({task})
        assert self.seen == expected


async def test_a_call_is_repeated_until_it_gets_an_answer(api: APIServer, script: Script) -> None:
    script.steps = [answer(429), answer(500), text(503, "no JSON"), cut, answer(kind="Pod")]
    assert await api.call("POST", "/x", {"a": 1}) == {"kind": "Pod"}
    assert len(script.requests) == 5


async def test_a_patch_is_a_merge_patch_and_repeated_on_a_conflict(
    api: APIServer, script: Script
) -> None:
    script.steps = [answer(409), answer(), answer(404, reason="NotFound", message="gone")]
    await api.call("PATCH", "/x", {"a": 1})
    assert script.requests[0].headers["Content-Type"] == "application/merge-patch+json"
    with pytest.raises(ApiError, match="404 NotFound: gone"):
        await api.call("PATCH", "/x", {"a": 1})


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_a_refusal_is_not_repeated(api: APIServer, script: Script, status: int) -> None:
    script.steps = [answer(status, reason="Because", message="no")]
    with pytest.raises(ApiError, match=f"{status} Because: no") as refusal:
        await api.call("POST", "/x", {})
    assert refusal.value.status == status
    assert len(script.requests) == 1


async def test_a_dropped_watch_goes_on_where_it_was(api: APIServer, script: Script) -> None:
    script.steps = [
        listing("7", "a"),
        events(("ADDED", pod("b", "8")), ("BOOKMARK", pod("", "9"))),
        events(("MODIFIED", pod("b", "10")), end="abort"),
        events('{"type": "ADD'),
        answer(503),
        events(("DELETED", pod("b", "11")), end="open"),
    ]
    await Followed().until(
        api, [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    )
    versions = [request.query.get("resourceVersion") for request in script.requests]
    assert versions == [None, "7", "9", "10", "10", "10"]


@pytest.mark.parametrize(
    "expired", [events(("ERROR", {"code": 410, "reason": "Expired"})), answer(410)]
)
async def test_a_watch_that_is_too_old_begins_anew(
    api: APIServer, script: Script, expired: Step
) -> None:
    script.steps = [
        listing("7", "a"),
        expired,
        listing("20", "c", "b"),
        events(("ADDED", pod("d", "21")), end="open"),
    ]
    await Followed().until(
        api, [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "c"), ("ADDED", "b"), ("ADDED", "d")]
    )


async def test_a_kind_that_is_not_served_yet_is_an_empty_list(
    api: APIServer, script: Script
) -> None:
    script.steps = [answer(404), listing("1", "a"), events(end="open")]
    await Followed().until(api, [("ADDED", "a")])


async def test_what_is_listed_comes_in_the_order_asked_for(api: APIServer, script: Script) -> None:
    script.steps = [listing("1", "b", "c", "a"), events(end="open")]
    names, listed = [], asyncio.Event()
    task = asyncio.create_task(
        api.follow(
            PODS,
            lambda _, body: names.append(body["metadata"]["name"]),
            listed,
            lambda body: -ord(body["metadata"]["name"]),
        )
    )
    async with asyncio.timeout(20):
        await listed.wait()
    task.cancel()
    await asyncio.wait({task})
    assert names == ["c", "b", "a"]


@pytest.mark.parametrize("steps", [[answer(403)], [listing("1"), answer(403)]])
async def test_what_may_not_be_followed_is_an_error(
    api: APIServer, script: Script, steps: list[Step]
) -> None:
    script.steps = steps
    with pytest.raises(ApiError):
        async with asyncio.timeout(20):
            await api.follow(PODS, lambda _, __: None, asyncio.Event())
