"""Turns of the long work in one event loop, so that answers are not behind all of it."""

import asyncio

__all__ = ["Turns"]


class Turns:
    """Lets one step of all long work run at a time.

    An answer of the API server passes through about ten steps of the event loop until a task that
    waits for it goes on. While a flood is read, reconciled and reported, each of these would be
    behind a step of each of these works.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Return when it is the caller's turn: call it after each step."""
        async with self._lock:
            await asyncio.sleep(0)
