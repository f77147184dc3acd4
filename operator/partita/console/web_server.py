"""Serves the page, and its data as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web
from kubernetes.aio.client import ApiClient

from partita.console.access import NotAllowedError, SignInError, ViewerAccess
from partita.console.answers import json_answer, refusals
from partita.console.detail_pages import DetailPages
from partita.console.event_streams import EventStream, EventStreams
from partita.console.feed import Feed
from partita.console.history import PERIOD, History
from partita.console.lists import ENDED, ORDERS, ended_namespaces, ended_page
from partita.console.page_state import PageState, changes, namespaces_of, visible_state
from partita.console.viewer_requests import ViewerRequests
from partita.kube.client import Kube
from partita.kube.errors import KubernetesError
from partita.times import Times

__all__ = ["serve_console"]

_STATIC = Path(__file__).parent / "static"
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


@asynccontextmanager
async def serve_console(
    api: ApiClient,
    access: ViewerAccess,
    *,
    host: str,
    port: int,
    namespace: str = "",
    times: Times = Times(),
    most_viewers: int = 200,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the page while the block runs; yield its host and port.

    Parameters
    ----------
    api
        Client of the cluster; the caller closes it.
    access
        Determines what each viewer may see. If viewers need no token, the server answers only
        requests to names of this machine, and `host` must be a loopback address.
    namespace
        What may not be listed in all namespaces is shown of this one; empty for none.
    times
        How often the page may change, and what is waited for.
    most_viewers
        Maximum number of concurrent streams, and of logs that are followed.

    Raises
    ------
    KubernetesError
        The cluster cannot be read.
    OSError
        The port is in use.
    """
    kube = Kube(api, times=times, manager="partita-console")
    feed, history = Feed(kube, times, namespace=namespace), History()
    await feed.load()
    if not feed.left_out:  # a part of the jobs is not the history of a partition
        history.recall(feed.state, feed.page, datetime.now(UTC))
    streams = EventStreams(times, most_viewers)
    console = _Console(feed, history, access, streams, times.stream_silence)
    details = DetailPages(kube, feed, history, access)
    requests = ViewerRequests(kube, details, access, most_logs=most_viewers)
    app = web.Application(middlewares=() if access.asks else (_only_this_machine,))
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(console.end)
    app.router.add_get("/events", console.events)
    app.router.add_get("/ended", console.ended)
    app.router.add_get("/detail", details.page)
    app.router.add_get("/policies", details.policies)
    app.router.add_get("/log", requests.log)
    app.router.add_post("/change", requests.change)
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/", _page)
    app.router.add_static("/", _STATIC)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        # An unexpected error in a task ends the block: otherwise the page would show old data.
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(feed.run()), tasks.create_task(console.remember())]
            yield runner.addresses[0][:2]
            for task in work:
                task.cancel()
    finally:
        await runner.cleanup()


@dataclass
class _Console:
    """Sends each viewer its visible state, and then the changes."""

    feed: Feed
    history: History
    access: ViewerAccess
    streams: EventStreams
    silence: float
    """Seconds after which a viewer is told that there is nothing new."""
    points: dict[str, Any] = field(default_factory=dict)
    sampled: int = 0

    async def remember(self) -> None:
        """Add samples to the history until cancelled."""
        while True:
            now = datetime.now(UTC)
            self.points = self.history.sample(self.feed.state, self.feed.page, now)
            self.sampled += 1
            await asyncio.sleep(PERIOD)

    async def end(self, _: web.Application) -> None:
        """End all streams."""
        self.feed.close()

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Respond with a stream of events."""
        authorization = request.headers.get("Authorization", "")
        with refusals():
            version, page = await self._visible(authorization)
        async with self.streams.open(request) as stream:
            with suppress(SignInError, NotAllowedError, KubernetesError):
                await self._stream(stream, authorization, version, page)
            # The browser connects again and gets the reason.
        return stream.response

    async def ended(self, request: web.Request) -> web.Response:
        """Respond with a page of the jobs that finished or failed in a partition."""
        query = request.query
        partition, outcome = query.get("partition", ""), query.get("outcome", "")
        order, offset = query.get("order", ""), query.get("offset", "0")
        known = outcome in ENDED and order.removeprefix("-") in {"", *ORDERS}
        if not (known and offset.isdecimal() and len(offset) < 10):
            text = f"write outcome={'|'.join(ENDED)}, order={'|'.join(ORDERS)}, and offset=NUMBER"
            raise web.HTTPBadRequest(text=text)
        state = self.feed.state
        with refusals():
            sees = await self.access.sees(
                request.headers.get("Authorization", ""), ended_namespaces(state, partition)
            )
        page = ended_page(
            state,
            partition,
            outcome,
            sees=sees or (lambda _: True),
            text=query.get("text", "").lower(),
            order=order,
            offset=int(offset),
        )
        return json_answer(page)

    async def _stream(
        self, stream: EventStream, authorization: str, version: int, page: PageState
    ) -> None:
        # Nothing is queued: a slow viewer gets the difference from the last state that was sent.
        sampled, known = self.sampled, self._known(page)
        history = {name: p for name, p in self.history.partitions.all().items() if name in known}
        await stream.send("state", {"reset": True, **changes({}, page)})
        await stream.send("history", history)
        sent = page
        while not self.feed.closed:
            try:
                async with asyncio.timeout(self.silence):
                    await self.feed.newer(version)
            except TimeoutError:
                await stream.send("still", {})
            version, page = await self._visible(authorization)
            if patch := changes(sent, page):
                await stream.send("state", patch)
            sent = page
            if sampled != self.sampled:
                sampled, known = self.sampled, self._known(page)
                points = {name: p for name, p in self.points.items() if name in known}
                await stream.send("points", points)

    async def _visible(self, authorization: str) -> tuple[int, PageState]:
        """Return the number of the newest version, and the part that this viewer may see."""
        version, page = self.feed.version, self.feed.page
        sees = await self.access.sees(authorization, namespaces_of(page))
        return version, page if sees is None else visible_state(page, sees)

    @staticmethod
    def _known(page: PageState) -> set[str]:
        return {entity["name"] for entity in page.values() if entity["kind"] == "partition"}


@web.middleware
async def _only_this_machine(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests to other host names, because of DNS rebinding.

    A web site could let its own name resolve to this machine.
    """
    name, _, port = request.host.rpartition(":")
    if (name if port.isdigit() and name else request.host).lower() not in _OURSELVES:
        raise web.HTTPMisdirectedRequest(text="open it as http://localhost or http://127.0.0.1")
    return await handler(request)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _page(_: web.Request) -> web.FileResponse:
    return web.FileResponse(_STATIC / "index.html")
