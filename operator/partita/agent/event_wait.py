"""Waits for an event, for a limited time."""

import asyncio
from contextlib import suppress

__all__ = ["event_or_timeout"]


async def event_or_timeout(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set or a number of seconds has passed; then clear the event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()
