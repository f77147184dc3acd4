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
_SHUTDOWN_TIMEOUT = 1.0  # seconds for responses in progress; watches are closed before


class EmbeddedAPIServer:
    """A Kubernetes API server in this process, in memory.

    Parameters
    ----------
    host, port
        Address on which it listens; port 0 selects a free port.
    history_limit
        Minimum number of changes of each kind that are kept for watches. A watch for older changes
        gets 410 Gone.
    bookmark_interval
        Seconds between two bookmarks of an idle watch; by default as in kube-apiserver's cache.

    Examples
    --------
    >>> async with EmbeddedAPIServer() as server:  # doctest: +SKIP
    ...     print(server.url)
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        history_limit: int = 10_000,
        bookmark_interval: float = 60.0,
    ) -> None:
        self._host = host
        self._port = port
        self._api = ServedAPI(history_limit, bookmark_interval)
        self._runner: web.ServerRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server.

        Raises
        ------
        OSError
            If the port is in use.
        """
        server = web.Server(
            Routes(self._api).handle,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,  # a watch ends when its client disconnects
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_TIMEOUT)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        for part in (self._api.collector, self._api.controllers):
            self._tasks.append(asyncio.create_task(part.run()))

    async def stop(self) -> None:
        """End all watches and stop the server.

        If a controller failed, its exception is raised.
        """
        for resource in self._api.resources():
            resource.collection.close()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """URL of the server."""
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
    """Return a request with Kubernetes' size limit, which is higher than aiohttp's default."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
