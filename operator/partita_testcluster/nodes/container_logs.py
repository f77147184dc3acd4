"""The logs of simulated containers, and the part of kubelet's API that serves them.

An API server answers `kubectl logs` by asking the kubelet of the Pod's node. It finds the kubelet
by the address and the port in the Node's status. Simulated kubelets use plain HTTP.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

__all__ = ["KUBELET_HOST", "ContainerLog", "KubeletAPI", "PodLogs"]

KUBELET_HOST: Final = "127.0.0.1"


class ContainerLog:
    """The output of one container so far.

    Attributes
    ----------
    waiting
        Why the container does not start; empty if it does.
    """

    def __init__(self) -> None:
        self.waiting = ""
        self._lines: list[tuple[datetime, str]] = []
        self._closed = False
        self._changed = asyncio.Event()

    def write(self, text: str) -> None:
        """Append lines."""
        now = datetime.now(UTC)
        self._lines += [(now, line) for line in text.splitlines()]
        self._wake()

    def close(self) -> None:
        """End the log: the container has ended."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(
        self, *, follow: bool = False, tail: int | None = None, timestamps: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the lines.

        Parameters
        ----------
        follow
            Continue until the container ends.
        tail
            Maximum number of existing lines; None for all.
        timestamps
            Begin each line with its time.
        """
        position = 0 if tail is None else max(0, len(self._lines) - tail)
        while True:
            changed, closed = self._changed, self._closed
            lines, position = self._lines[position:], len(self._lines)
            for time, text in lines:
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S.%fZ ") if timestamps else ""
                yield f"{stamp}{text}\n".encode()
            if closed or not follow:
                return
            await changed.wait()


PodLogs = dict[tuple[str, str], dict[str, ContainerLog]]
"""The logs by Pod (namespace and name) and container."""


class KubeletAPI:
    """Serves the logs of all simulated machines on one port.

    Parameters
    ----------
    logs
        The logs, which other parts of the simulation write.
    """

    def __init__(self, logs: PodLogs) -> None:
        self._logs = logs
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)
        self.port = 0

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve_log)
        return app

    async def start(self) -> None:
        """Start serving on a free port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, KUBELET_HOST, 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop serving and end all responses."""
        await self._runner.cleanup()

    async def _serve_log(self, request: web.Request) -> web.StreamResponse:
        info, query = request.match_info, request.query
        log = self._logs.get((info["namespace"], info["pod"]), {}).get(info["container"])
        where = f'container "{info["container"]}" in pod "{info["pod"]}"'
        problem = ""
        if log is None:
            problem = f"{where} is not known to this node: its log is lost or not begun"
        elif log.waiting:
            problem = f"{where} is waiting to start: {log.waiting}"
        elif query.get("previous") == "true":  # no simulated container starts twice
            problem = f"previous terminated {where} not found"
        if log is None or problem:
            return web.Response(status=400, text=problem)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        tail = query.get("tailLines")
        try:
            async for line in log.read(
                follow=query.get("follow") == "true",
                tail=None if tail is None else int(tail),
                timestamps=query.get("timestamps") == "true",
            ):
                await response.write(line)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has disconnected
        return response
