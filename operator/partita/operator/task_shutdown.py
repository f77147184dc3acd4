"""Ends tasks for sure.

kopf's tasks look after each other: a watch that was cancelled waits for its workers, and for the
task that counts them. `asyncio.run` cancels once what is left at the end, the counting task too;
the watch then waits for ever. And `asyncio.wait_for` of Python 3.11 can swallow a cancellation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

__all__ = ["alone", "end"]

CANCEL_AGAIN = 1.0
"""Seconds for which a task may take to end before it is cancelled again."""


async def end(find: Callable[[], Iterable[asyncio.Task[Any]]]) -> None:
    """Cancel tasks again and again, until none that is found is left."""
    while left := {task for task in find() if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_AGAIN)


async def alone(work: Coroutine[Any, Any, None]) -> None:
    """Do some work that has the event loop to itself; end what it leaves there."""
    this = asyncio.current_task()
    try:
        await work
    finally:
        await end(lambda: (task for task in asyncio.all_tasks() if task is not this))
