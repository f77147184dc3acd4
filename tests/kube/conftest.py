"""A server that answers as it is told, and the client that talks to it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from partita.kube import client
from partita.kube.client import Kube
from partita.kube.fence import fence_trace

Answer = web.Response | Callable[[web.Request], Any]


def answer(status: int, body: Any = None, **headers: str) -> web.Response:
    if isinstance(body, str):
        return web.Response(status=status, text=body, headers=headers)
    return web.json_response({} if body is None else body, status=status, headers=headers)


def failure(status: int, reason: str = "", message: str = "no", **headers: str) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return answer(status, body, **headers)


def cut(request: web.Request) -> web.Response:
    """Break the connection before an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class Server:
    """Gives the answers it was given, in their order; the last one again and again."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = await request.json() if text else None
        self.asked.append(
            Asked(request.method, request.path, dict(request.query), body, dict(request.headers))
        )
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not callable(given):
            return _again(given)
        made = given(request)
        return await made if inspect.isawaitable(made) else made


def _again(response: web.Response) -> web.Response:
    """Copy an answer: one response object serves once."""
    return web.Response(status=response.status, body=response.body, headers=response.headers.copy())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[ApiClient]:
    configuration = Configuration(host=server.url, trace_configs=[fence_trace()])
    async with ApiClient(configuration) as made:
        yield made


@pytest.fixture
def kube(api: ApiClient) -> Kube:
    return Kube(api)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client waited between its tries; it waits for nothing."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(client, "asyncio", SimpleNamespace(sleep=sleep))
    return waited
