"""Serves the page, and its figures as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import structlog
from aiohttp import web
from kubernetes.aio.client import ApiClient

from partita.console.access import NotAllowedError, SignInError, ViewerAccess
from partita.console.feed import Feed
from partita.console.history import PERIOD, History
from partita.console.page_state import Scene, changes, namespaces_of, scene_for
from partita.kube.client import Kube
from partita.kube.errors import KubernetesError

__all__ = ["serve_console"]

_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_OURSELVES = {"localhost", "127.0.0.1", "[::1]"}

SILENCE = 15.0
"""Seconds after which a viewer is told that nothing is new, and his rights are looked at again."""
PATIENCE = 10.0
"""Seconds in which a viewer must take what is sent, else he is dropped."""
MOST_VIEWERS = 200
"""Streams at a time."""


@asynccontextmanager
async def serve_console(
    api: ApiClient, access: ViewerAccess, *, host: str, port: int
) -> AsyncIterator[tuple[str, int]]:
    """Serve the page while the block runs; yields where.

    Parameters
    ----------
    api
        How the cluster is read; the caller closes it.
    access
        Decides what is shown to whom. Where it asks nobody who he is, the page is served under the
        names of this machine alone, and `host` must be a loopback address.

    Raises
    ------
    KubernetesError
        The cluster cannot be read.
    OSError
        The port is taken.
    """
    feed, history = Feed(Kube(api)), History()
    await feed.load()
    history.recall(feed.state, feed.scene, datetime.now(UTC))
    console = _Console(feed, history, access)
    app = web.Application(middlewares=() if access.asks else (_only_this_machine,))
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(console.end)
    app.router.add_get("/events", console.events)
    app.router.add_get("/healthz", _healthz)
    for path in sorted(_STATIC.iterdir()):
        name = "" if path.name == "index.html" else path.name
        app.router.add_get(f"/{name}", _file(path))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        # A part that fails unforeseen ends the block: a page that stands still deceives.
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(feed.run()), tasks.create_task(console.remember())]
            yield runner.addresses[0][:2]
            for task in work:
                task.cancel()
    finally:
        await runner.cleanup()


class _Console:
    """Sends each viewer what he may see, and then what has changed of it."""

    def __init__(self, feed: Feed, history: History, access: ViewerAccess) -> None:
        self._feed = feed
        self._history = history
        self._access = access
        self._points: dict[str, Any] = {}
        self._sampled = 0
        self._viewers = 0
        self._log = structlog.get_logger().bind(part="console")

    async def remember(self) -> None:
        """Sample for ever."""
        while True:
            self._points = self._history.sample(self._feed.scene, datetime.now(UTC))
            self._sampled += 1
            await asyncio.sleep(PERIOD)

    async def end(self, _: web.Application) -> None:
        """Let all streams end in order."""
        self._feed.close()

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Answer with an endless stream."""
        authorization = request.headers.get("Authorization", "")
        try:
            version, scene = await self._scene(authorization)
        except SignInError:
            raise web.HTTPUnauthorized(
                text="this token is missing, expired, or not for this cluster",
                headers={"WWW-Authenticate": "Bearer"},
            ) from None
        except NotAllowedError as error:
            raise web.HTTPForbidden(
                text=f"{error} may not list gpupartitions.partita.dev, ask for a role that may"
            ) from None
        except KubernetesError:
            raise web.HTTPServiceUnavailable(text="the API server does not answer") from None
        if self._viewers >= MOST_VIEWERS:
            raise web.HTTPServiceUnavailable(text="too many viewers: close a page")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._viewers += 1
        try:
            await response.prepare(request)
            await self._stream(response, authorization, version, scene)
        except (SignInError, NotAllowedError, KubernetesError):
            pass  # the browser asks again, and is told why
        except TimeoutError:
            self._log.info("a viewer that does not read is dropped")
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self._viewers -= 1
        return response

    async def _stream(
        self, response: web.StreamResponse, authorization: str, version: int, scene: Scene
    ) -> None:
        # Nothing is queued: a viewer who is slow gets the difference to what he got last.
        sampled, known = self._sampled, self._known(scene)
        history = {name: p for name, p in self._history.all().items() if name in known}
        await _send(response, "scene", {"reset": True, **changes({}, scene)})
        await _send(response, "history", history)
        sent = scene
        while not self._feed.closed:
            try:
                async with asyncio.timeout(SILENCE):
                    await self._feed.newer(version)
            except TimeoutError:
                await _send(response, "still", {})
            version, scene = await self._scene(authorization)
            if patch := changes(sent, scene):
                await _send(response, "scene", patch)
            sent = scene
            if sampled != self._sampled:
                sampled, known = self._sampled, self._known(scene)
                points = {name: p for name, p in self._points.items() if name in known}
                await _send(response, "points", points)

    async def _scene(self, authorization: str) -> tuple[int, Scene]:
        """Return the newest version's number, and what this viewer may see of it."""
        version, scene = self._feed.version, self._feed.scene
        sees = await self._access.sees(authorization, namespaces_of(scene))
        return version, scene if sees is None else scene_for(scene, sees)

    @staticmethod
    def _known(scene: Scene) -> set[str]:
        return {entity["name"] for entity in scene.values() if entity["kind"] == "partition"}


async def _send(response: web.StreamResponse, event: str, data: dict[str, Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        await response.write(b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data)))


@web.middleware
async def _only_this_machine(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse a name that is not ours: a site could have its own name lead here (DNS rebinding)."""
    name, _, port = request.host.rpartition(":")
    if (name if port.isdigit() and name else request.host).lower() not in _OURSELVES:
        raise web.HTTPMisdirectedRequest(text="open it as http://localhost or http://127.0.0.1")
    return await handler(request)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _file(path: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    body, kind = path.read_bytes(), _TYPES[path.suffix]

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return answer
