"""A reverse proxy between a client under test and an API server: it records and breaks things.

Every request passes through; the writes among them are recorded. A test injects *faults*: each
names the requests it is about and what happens to the n-th of them, before the API server sees
it or after it took effect. Watches are streamed through as they come. ::

    async with FaultProxy(api_server) as proxy:
        proxy.inject(writes("gpuservers"), nth=2, answer=conflict())
        proxy.inject(writes(), nth=5, when=When.AFTER, hook=proxy.killing(operator.pid))
        ...  # run the operator with proxy.write_kubeconfig(folder)
        assert proxy.counts()["PATCH sharedgpujobs/status"] <= 3
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from support.clusters import ApiServer
from support.faults import CannedAnswer, Fault, Hook, Match, When, everything
from support.late import later
from support.requests import Request

__all__ = ["CLUSTER_NAME", "FaultProxy", "Write"]

CLUSTER_NAME = "partita-test-proxy"

HOP_BY_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
"""Headers that are about one connection and not passed on (RFC 9110, section 7.6.1)."""


@dataclass
class Write:
    """One recorded write.

    Attributes
    ----------
    request
        What was asked, and by whom.
    status
        The API server's answer; None while it has none, or when it never saw the request.
    answered
        What the client was told; None while it was not, or when it was cut off.
    at
        When it came, by the event loop's clock.
    """

    request: Request
    at: float = 0.0
    status: int | None = None
    answered: int | None = None

    @property
    def took_effect(self) -> bool:
        """Whether the API server accepted it."""
        return self.status is not None and self.status < 400


class _CutError(Exception):
    """The client's connection is to be closed without an answer."""


class FaultProxy:
    """The proxy, for use as an asynchronous context manager.

    Parameters
    ----------
    upstream
        The API server. Its administrator's token goes along where the client sends none.
    serial
        Let one write at a time through, in the order of arrival. Then a hook after the n-th
        write runs while no other write is on its way.
    """

    def __init__(self, upstream: ApiServer, *, serial: bool = False) -> None:
        self.writes: list[Write] = []
        self.url = ""
        self._upstream = upstream
        self._ssl = upstream.ssl_context()
        self._turn = asyncio.Semaphore(1 if serial else 1_000_000)
        self._faults: list[Fault] = []
        self._connections: dict[asyncio.Transport, int] = {}
        self._severed = 0
        self._late: dict[str, float] = {}
        self._watching: dict[asyncio.Transport, Request] = {}
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()
        self._numbers = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sever()
        await self._runner.cleanup()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def write_kubeconfig(self, folder: Path, account: str = "partita-operator") -> Path:
        """Write a kubeconfig that leads through the proxy, and return its path.

        Parameters
        ----------
        account
            Service account that it is for; the administrator where the server does not know it.
        """
        named = {"name": CLUSTER_NAME}
        token = self._upstream.tokens.get(account)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [named | {"cluster": {"server": self.url}}],
            "users": [named | {"user": {"token": token} if token else {}}],
            "contexts": [named | {"context": {"cluster": CLUSTER_NAME, "user": CLUSTER_NAME}}],
            "current-context": CLUSTER_NAME,
        }
        path = folder / "proxy.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    # What a test asks and orders

    def inject(
        self,
        match: Match,
        *,
        nth: int = 1,
        times: int | None = 1,
        when: When = When.BEFORE,
        answer: CannedAnswer | None = None,
        cut: bool = False,
        delay: float = 0,
        hook: Hook | None = None,
    ) -> Fault:
        """Let something happen to the ``nth`` matching request and to ``times`` in all.

        Parameters
        ----------
        match
            Which requests are counted. A fault `When.AFTER` counts only what took effect.
        times
            How many in a row; None for all from the n-th on.
        answer, cut
            What the client gets instead of the API server's answer: another, or a closed
            connection. With `When.BEFORE` the API server does not see the request then.
        delay
            Seconds to hold the request or its answer.
        hook
            Called (and awaited) at that moment, before ``answer`` or ``cut``.
        """
        fault = Fault(match, nth, times, when, answer, cut, delay, hook)
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Let a fault happen no more."""
        self._faults.remove(fault)

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Be unreachable inside the context: connections are cut, new requests too."""
        fault = self.inject(everything, times=None, cut=True)
        self.sever()
        try:
            yield
        finally:
            self.remove(fault)

    def killing(self, pid: int) -> Hook:
        """Return a hook that kills a process, and with it all that it has sent and that waits here.

        With `When.BEFORE` that includes the request which the hook was called for.
        """

        def hook(_: Request) -> None:
            os.kill(pid, signal.SIGKILL)
            self.sever()

        return hook

    def sever(self) -> None:
        """Cut every connection there is; a request that came over one is not passed on any more.

        What the API server has already been sent still takes effect there.
        """
        self._severed += 1
        for transport in list(self._connections):
            transport.abort()
        self._connections.clear()

    def drop_watches(self, match: Match = everything) -> int:
        """Cut the watches that run now; return how many."""
        dropped = [transport for transport, asked in self._watching.items() if match(asked)]
        for transport in dropped:
            transport.abort()
        return len(dropped)

    def delay_watches(self, resource: str, seconds: float) -> None:
        """Let what watches of a resource say reach the clients so much later from now on."""
        self._late[resource] = seconds

    def counts(self, match: Match = everything) -> Counter[str]:
        """Return how many writes took effect, by method and resource."""
        return Counter(w.request.kind for w in self.writes if w.took_effect and match(w.request))

    # What happens to a request

    async def _handle(self, asked: web.Request) -> web.StreamResponse:
        transport = asked.transport
        if transport is None:  # gone before it was read
            raise asyncio.CancelledError
        epoch = self._connections.setdefault(transport, self._severed)
        self._numbers += 1
        request = Request(
            number=self._numbers,
            method=asked.method,
            path=asked.path,
            query=dict(asked.query),
            body=await asked.read(),
            agent=asked.headers.get("User-Agent", ""),
        )
        try:
            if request.is_watch:
                return await self._watch(asked, request, transport)
            # A client that leaves does not stop what it has begun, as with a real server.
            task = asyncio.create_task(self._exchange(asked, request, epoch))
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            return await asyncio.shield(task)
        except (_CutError, aiohttp.ClientError):
            transport.abort()
            return web.Response(status=502)  # nobody hears it
        finally:
            if transport.is_closing():
                self._connections.pop(transport, None)

    def _forget(self, task: asyncio.Task[web.StreamResponse]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked has left: nobody else would look at it

    async def _exchange(self, asked: web.Request, request: Request, epoch: int) -> web.Response:
        if not request.is_write:
            return await self._relay(asked, request, epoch, None)
        async with self._turn:
            if epoch != self._severed:
                raise _CutError
            write = Write(request, asyncio.get_running_loop().time())
            self.writes.append(write)
            response = await self._relay(asked, request, epoch, write)
            write.answered = response.status
            return response

    async def _relay(
        self, asked: web.Request, request: Request, epoch: int, write: Write | None
    ) -> web.Response:
        if (answer := await self._strike(request, When.BEFORE)) is not None:
            return answer
        if epoch != self._severed:
            raise _CutError
        async with self._forward(asked, request) as upstream:
            body = await upstream.read()
            if write is not None:
                write.status = upstream.status
            if upstream.status < 400:
                answer = await self._strike(request, When.AFTER)
            return answer or web.Response(
                status=upstream.status, body=body, headers=_passed_on(upstream.headers)
            )

    async def _watch(
        self, asked: web.Request, request: Request, transport: asyncio.Transport
    ) -> web.StreamResponse:
        if (answer := await self._strike(request, When.BEFORE)) is not None:
            return answer
        # Before it is passed on: one that the API server has not answered yet can be dropped, too.
        self._watching[transport] = request
        try:
            async with self._forward(asked, request) as upstream:
                response = web.StreamResponse(
                    status=upstream.status, headers=_passed_on(upstream.headers)
                )
                await response.prepare(asked)
                chunks = later(
                    upstream.content.iter_any(), lambda: self._late.get(request.resource, 0)
                )
                async with contextlib.aclosing(chunks):
                    async for chunk in chunks:
                        await response.write(chunk)
        except ConnectionError as error:
            raise _CutError from error
        finally:
            del self._watching[transport]
        await response.write_eof()
        return response

    def _forward(
        self, asked: web.Request, request: Request
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = _passed_on(asked.headers)
        if self._upstream.token is not None:
            headers.setdefault("Authorization", f"Bearer {self._upstream.token}")
        return self._session.request(
            request.method,
            self._upstream.url + asked.raw_path,
            data=request.body or None,
            headers=headers,
            ssl=True if self._ssl is None else self._ssl,
            allow_redirects=False,
        )

    async def _strike(self, request: Request, when: When) -> web.Response | None:
        """Let the faults whose turn it is happen; return the answer one of them gives."""
        answer: web.Response | None = None
        cut = False
        for fault in [fault for fault in self._faults if fault.strikes(request, when)]:
            await asyncio.sleep(fault.delay)
            if fault.hook is not None and inspect.isawaitable(called := fault.hook(request)):
                await called
            cut = cut or fault.cut
            if fault.answer is not None:
                answer = fault.answer.response()
        if cut:
            raise _CutError
        return answer


def _passed_on(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    passed = CIMultiDict(headers)
    for name in {name.lower() for name in headers} & HOP_BY_HOP:
        del passed[name]
    return passed
