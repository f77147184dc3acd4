"""Waits that end at an event, or after a while."""

import asyncio
from contextlib import suppress

__all__ = ["woken"]


async def woken(event: asyncio.Event, within: float) -> None:
    """Wait until an event is set, but no longer than this many seconds; then clear it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    event.clear()
