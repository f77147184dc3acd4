"""Keeps a write from being sent by a process that no longer leads, however long it waited.

To ask before a request is begun is not enough: a request waits for a connection, and in that time
the process may be stopped, and wake up long after another has taken the lead. So it is asked once
more in the moment in which the body is handed to the socket. Without its body a write has no
effect: each of ours has one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace

import aiohttp

__all__ = ["fence_trace", "fenced"]

_may_send: ContextVar[Callable[[], bool] | None] = ContextVar("may_send", default=None)


@contextmanager
def fenced(may_send: Callable[[], bool]) -> Iterator[None]:
    """Have what is sent inside the block sent only if this holds in that moment."""
    before = _may_send.set(may_send)
    try:
        yield
    finally:
        _may_send.reset(before)


def fence_trace() -> aiohttp.TraceConfig:
    """Return what a client session needs for `fenced` to have an effect on it."""
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_ask)  # called before the chunk is written
    return trace


async def _ask(
    _: aiohttp.ClientSession, __: SimpleNamespace, ___: aiohttp.TraceRequestChunkSentParams
) -> None:
    may_send = _may_send.get()
    if may_send is not None and not may_send():
        raise aiohttp.ClientConnectionError("this process does not lead: nothing is sent")
