"""Keeps what the operator does all the time going, whatever it meets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import structlog

from partita.times import Times

__all__ = ["steadily"]

_LONGEST_PAUSE: Final = 60.0
"""Seconds. An assumption: what fails again and again needs somebody who reads the log."""


async def steadily(work: Callable[[], Awaitable[None]], times: Times = Times()) -> NoReturn:
    """Do some work that should not end; if it fails, log that, and begin again after a pause.

    Requests that fail are its own matter. All else is a bug, or an object of which nobody thought,
    and must not end the rest of the operator, or each operator that starts.
    """
    loop, pause = asyncio.get_running_loop(), times.retry_after
    log = structlog.get_logger().bind(part="operator", work=getattr(work, "__qualname__", ""))
    while True:
        began = loop.time()
        try:
            await work()
        except Exception:
            log.exception("work failed", again_in=pause)
        await asyncio.sleep(pause)
        lasted = loop.time() - began > 2 * _LONGEST_PAUSE
        pause = times.retry_after if lasted else min(2 * pause, _LONGEST_PAUSE)
