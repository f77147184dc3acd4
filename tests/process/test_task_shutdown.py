"""What kopf leaves in the event loop ends, whatever waits for what."""

import asyncio
import contextlib

import pytest

from partita.process.task_shutdown import alone
from partita.times import Times

QUICK = Times(cancel_again=0.05)
_left: set[asyncio.Task[None]] = set()
"""The event loop itself keeps no task from being collected."""


async def like_a_watch_of_kopf(over: list[str]) -> None:
    """Once cancelled, wait for what began only then, as `kopf.queueing.watcher` does."""
    try:
        await asyncio.Event().wait()
    finally:
        closing = asyncio.create_task(asyncio.Event().wait())  # who would set it is gone, too
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)
        over.append("watch")


async def leave_one(over: list[str]) -> None:
    """Do some work that leaves a task behind."""
    _left.add(asyncio.create_task(like_a_watch_of_kopf(over)))
    await asyncio.sleep(0)


def test_a_failure_is_told_once_what_waits_for_what_was_cancelled_has_ended() -> None:
    over: list[str] = []

    async def fail() -> None:
        await leave_one(over)
        raise ValueError("the lease is lost")

    with pytest.raises(ValueError, match="the lease is lost"):
        asyncio.run(alone(fail(), QUICK))
    assert over == ["watch"]
