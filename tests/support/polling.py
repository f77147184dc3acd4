"""Wait for a state by asking for it: the only polling loops of the tests."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["TIMEOUT", "holds_within", "poll", "until"]

TIMEOUT = 90.0
"""Seconds after which a wait fails: many times what any state takes on a busy machine."""

INTERVAL = 0.02
"""Seconds between two questions."""

T = TypeVar("T")


async def until(
    condition: Callable[[], Any],
    timeout: float = TIMEOUT,  # noqa: ASYNC109  (a failed wait shows the last state)
    *,
    what: Any = None,
) -> Any:
    """Wait until a condition holds and return its value.

    Parameters
    ----------
    condition
        Called again and again until its value is true; it may be a coroutine function.
    timeout
        Seconds to wait.
    what
        Shown if the condition does not hold in time: a value, or a function that returns it.

    Raises
    ------
    AssertionError
        The condition does not hold in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        asked = condition()
        value = await asked if inspect.isawaitable(asked) else asked
        if value:
            return value
        if time.monotonic() > deadline:
            raise _failure(timeout, value, what)
        await asyncio.sleep(INTERVAL)


def poll(condition: Callable[[], T], *, what: Any = None) -> T:
    """Do the same as `until` in a thread without an event loop."""
    if value := holds_within(condition, TIMEOUT):
        return value
    raise _failure(TIMEOUT, value, what)


def holds_within(condition: Callable[[], T], timeout: float) -> T:
    """Wait until a condition holds, or the time is over; return its last value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(INTERVAL)
    return value


def _failure(timeout: float, value: object, what: Any) -> AssertionError:
    shown = what() if callable(what) else what
    return AssertionError(f"not within {timeout:g} s: {value if shown is None else shown!r}")
