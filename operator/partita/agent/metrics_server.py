"""Serves the agent's metrics over HTTP."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog
from aiohttp import web

__all__ = ["serve_metrics"]

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


async def serve_metrics(port: int, page: Callable[[], str]) -> NoReturn:
    """Serve /metrics until cancelled.

    If the port cannot be opened, this is logged: the agent works without its metrics.

    Parameters
    ----------
    port
        TCP port on all interfaces.
    page
        Returns the metrics in the text format.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=page(), headers={"Content-Type": _TEXT})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            structlog.get_logger(__name__).error("metrics not served", error=str(error))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
    raise AssertionError  # it waits forever
