"""Answers the kubelet's probes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["serve_health"]


@asynccontextmanager
async def serve_health(
    port: int, ready: Callable[[], bool], trouble: Callable[[], str] = lambda: ""
) -> AsyncIterator[None]:
    """Serve /healthz and /readyz while the block runs.

    `/healthz` answers as long as the event loop turns. `/readyz` is 503 for a process that
    waits for the lease.

    Parameters
    ----------
    port
        0 serves nothing.
    trouble
        What is wrong though the operator does its work: told at `/healthz`, which stays 200.
    """
    if not port:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        said = trouble()
        return web.Response(text=f"ok, but {said}" if said else "ok")

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok")
        return web.Response(status=503, text="waiting for the lease")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
