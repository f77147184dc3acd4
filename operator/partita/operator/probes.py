"""Answers the kubelet's probes, and Prometheus."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["Readiness", "serve_health"]


class Readiness:
    """Whether this process could do the operator's work, be it now or when it gets the lease.

    One that waits for the lease is ready: else no rollout could wait for a new Pod before it ends
    the one that leads.
    """

    def __init__(self) -> None:
        self.why_not = "it has just started"
        """What stands in the way; empty once it is ready."""

    def waits(self, why: str) -> None:
        """Be not ready, for a reason that a person can act on."""
        self.why_not = why

    def reached(self) -> None:
        """Be ready."""
        self.why_not = ""


@asynccontextmanager
async def serve_health(
    port: int,
    readiness: Readiness,
    page: Callable[[str], tuple[bytes, str]],
    trouble: Callable[[], str] = lambda: "",
) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics while the block runs.

    `/healthz` answers as long as the event loop turns. `/readyz` is 503, and says why, for a
    process that could not work.

    Parameters
    ----------
    port
        0 serves nothing.
    page
        Returns the figures and their content type, as a header `Accept` wants them.
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
        if why_not := readiness.why_not:
            return web.Response(status=503, text=f"not ready: {why_not}")
        return web.Response(text="ok")

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = page(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
