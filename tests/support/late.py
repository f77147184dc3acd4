"""What arrives later than it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

__all__ = ["later"]

Item = TypeVar("Item")


async def later(
    items: AsyncIterator[Item], seconds: Callable[[], float]
) -> AsyncGenerator[Item, None]:
    """Yield items in their order, each so many seconds after it came.

    Parameters
    ----------
    seconds
        Asked for each item when it comes.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, Item] | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async for item in items:
                queue.put_nowait((loop.time() + seconds(), item))
        finally:
            queue.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (found := await queue.get()) is not None:
            due, item = found
            await asyncio.sleep(due - loop.time())
            yield item
        await reading
    finally:
        reading.cancel()
