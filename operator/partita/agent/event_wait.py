"""Waits for a limited time."""

import asyncio
from collections.abc import Awaitable

__all__ = ["ends_within", "event_or_timeout"]


async def ends_within(seconds: float, work: Awaitable[object]) -> bool:
    """Wait for something, and cancel it after a number of seconds; return whether it has ended."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


async def event_or_timeout(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set or a number of seconds has passed; then clear the event."""
    await ends_within(seconds, event.wait())
    event.clear()
