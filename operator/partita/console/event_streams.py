"""Streams of server-sent events to the page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import structlog
from aiohttp import web

from partita.times import Times

__all__ = ["EventStream", "EventStreams"]


class EventStream:
    """One stream, which has begun.

    Parameters
    ----------
    patience
        Seconds in which the viewer must receive an event.
    """

    def __init__(self, response: web.StreamResponse, patience: float) -> None:
        self.response = response
        self._patience = patience

    async def send(self, event: str, data: dict[str, Any]) -> None:
        """Send an event, and wait until the viewer takes more."""
        async with asyncio.timeout(self._patience):
            text = b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data))
            await self.response.write(text)


class EventStreams:
    """Opens streams, up to a maximum number at the same time."""

    def __init__(self, times: Times, most: int) -> None:
        self._patience = times.viewer_patience
        self._most = most
        self._open = 0
        self._log = structlog.get_logger().bind(part="console")

    @asynccontextmanager
    async def open(self, request: web.Request) -> AsyncIterator[EventStream]:
        """Respond with the events that the block sends; a viewer that is gone ends it.

        Raises
        ------
        HTTPServiceUnavailable
            Too many streams are open.
        """
        if self._open >= self._most:
            raise web.HTTPServiceUnavailable(text="too many viewers: close a page")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "X-Accel-Buffering": "no",  # nginx would hold the events back
            }
        )
        self._open += 1
        try:
            await response.prepare(request)
            yield EventStream(response, self._patience)
        except TimeoutError:
            self._log.info("a viewer that does not read is dropped")
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self._open -= 1
