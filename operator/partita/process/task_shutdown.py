"""Ends tasks reliably.

kopf's tasks depend on each other: a cancelled watch waits for its workers, and for the task that
counts them. `asyncio.run` cancels all remaining tasks once, including the counting task, so the
watch then waits for ever. And `asyncio.wait_for` of Python 3.11 can suppress a cancellation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from partita.times import Times

__all__ = ["alone", "end"]


async def end(find: Callable[[], Iterable[asyncio.Task[Any]]], times: Times = Times()) -> None:
    """Cancel the tasks that `find` returns repeatedly, until all are done."""
    while left := {task for task in find() if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=times.cancel_again)


async def alone(work: Coroutine[Any, Any, None], times: Times = Times()) -> None:
    """Run some work as the only user of the event loop; end the tasks that it leaves there."""
    this = asyncio.current_task()
    try:
        await work
    finally:
        await end(lambda: (task for task in asyncio.all_tasks() if task is not this), times)
