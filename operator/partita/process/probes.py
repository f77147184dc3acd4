"""Serves the kubelet's probes and Prometheus' metrics over HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

__all__ = ["Readiness", "serve_health"]


class Readiness:
    """Whether this process can do the operator's work, now or once it holds the Lease.

    A process that waits for the Lease is ready. Otherwise a rollout could not wait for the new Pod
    before it ends the leader's Pod.
    """

    def __init__(self) -> None:
        self.why_not = "the process has just started"
        """Why it is not ready; empty once it is ready."""

    def set_not_ready(self, why: str) -> None:
        """Become not ready, with a reason that a user can act on."""
        self.why_not = why


@asynccontextmanager
async def serve_health(
    port: int,
    readiness: Readiness,
    registry: CollectorRegistry,
    trouble: Callable[[], str] = lambda: "",
) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics while the block runs.

    `/healthz` answers as long as the event loop runs. `/readyz` answers 503 with the reason if the
    process cannot work.

    Parameters
    ----------
    port
        TCP port on all interfaces; 0 serves nothing.
    registry
        The metrics.
    trouble
        Returns a problem that does not stop the operator. `/healthz` shows it and stays 200.
    """
    if not port:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        problem = trouble()
        return web.Response(text=f"ok, but {problem}" if problem else "ok")

    async def readyz(_: web.Request) -> web.Response:
        if why_not := readiness.why_not:
            return web.Response(status=503, text=f"not ready: {why_not}")
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", make_aiohttp_handler(registry, disable_compression=True))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
