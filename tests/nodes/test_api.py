"""Which calls are repeated; `tests/kube` has how the client fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from partita.kube.errors import ConflictError
from partita_testcluster.nodes.api import APIServer

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


async def test_a_call_is_repeated_until_it_gets_an_answer(api: APIServer, script: Script) -> None:
    script.steps = [answer(429), answer(kind="Pod")]
    assert await api.call("POST", "/x", {"a": 1}) == {"kind": "Pod"}
    assert len(script.requests) == 2


async def test_a_patch_is_a_merge_patch_and_repeated_on_a_conflict(
    api: APIServer, script: Script
) -> None:
    script.steps = [answer(409), answer()]
    await api.call("PATCH", "/x", {"a": 1})
    assert script.requests[1].headers["Content-Type"] == "application/merge-patch+json"


async def test_a_patch_of_one_version_is_not_repeated_when_there_is_a_newer_one(
    api: APIServer, script: Script
) -> None:
    script.steps = [answer(409, reason="Conflict", message="modified")]
    with pytest.raises(ConflictError, match="409 modified"):
        await api.call("PATCH", "/x", {"metadata": {"resourceVersion": "7"}})
    assert len(script.requests) == 1
