"""Serves the agent's metrics over HTTP."""

import asyncio
from typing import NoReturn

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.registry import Collector

__all__ = ["serve_metrics"]


async def serve_metrics(port: int, metrics: Collector) -> NoReturn:
    """Serve /metrics until cancelled.

    If the port cannot be opened, this is logged: the agent works without its metrics.

    Parameters
    ----------
    port
        TCP port on all interfaces.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(registry, disable_compression=True))
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
