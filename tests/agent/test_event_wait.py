"""Waiting for an event: it wakes, time does, and who is to stop ends."""

from __future__ import annotations

import asyncio

import pytest

from partita.agent.event_wait import event_or_timeout
from support.polling import TIMEOUT


async def test_an_event_wakes_and_is_used_up():
    event = asyncio.Event()
    event.set()
    await event_or_timeout(event, 60)
    await event_or_timeout(event, 0.01)  # time wakes, too


@pytest.mark.parametrize("ticks", range(6))
async def test_who_is_to_stop_does_though_the_event_comes_in_the_same_moment(ticks: int):
    """With asyncio.wait_for() of Python 3.11 the cancellation was lost, and the agent never ended."""
    event = asyncio.Event()

    async def work() -> None:
        while True:
            await event_or_timeout(event, 60)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    working.cancel()
    _, left = await asyncio.wait({working}, timeout=TIMEOUT)
    assert not left
