"""A Kubernetes API server in this process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from partita_testcluster.apiserver.api import ServedAPI
from partita_testcluster.apiserver.messages import MAX_BODY
from partita_testcluster.apiserver.routes import Routes

__all__ = ["EmbeddedAPIServer"]

_NAME = "partita-embedded"
_SHUTDOWN_TIMEOUT = 1.0  # seconds for answers under way; watches are told to end before


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
        self._api = ServedAPI(history_limit)
        self._runner: web.ServerRunner | None = None
        self._collector: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
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
        server = web.Server(
            Routes(self._api).handle,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,  # a watch ends when its client has gone
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_TIMEOUT)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        self._collector = asyncio.create_task(self._api.collector.run())

    async def stop(self) -> None:
        """End all watches and stop to serve; raise what ended the collection of garbage, if any."""
        for resource in self._api.resources():
            resource.collection.close()
        if self._collector is not None:
            self._collector.cancel()
            with suppress(asyncio.CancelledError):
                await self._collector
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{self._host}:{self._port}"

    def kubeconfig(self) -> dict[str, Any]:
        """Return a kubeconfig whose cluster and context are named ``partita-embedded``."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _NAME, "cluster": {"server": self.url}}],
            "users": [{"name": _NAME, "user": {}}],
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
            "current-context": _NAME,
        }


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    """Return a request that may be as large as Kubernetes allows; aiohttp's limit is lower."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
