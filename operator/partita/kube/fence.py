"""Keeps a write from being sent that must not be any more, however long it waited.

The process may no longer lead, or what was to be written is not due any more. To ask before a
request is begun is not enough: a request waits for a connection, and in that time the process may
be stopped, and wake up long after another has taken the lead. So it is asked once more in the
moment in which the body is handed to the socket. Without its body a write has no effect: each of
ours has one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace

import aiohttp

__all__ = ["fence_trace", "fenced", "may_send"]

_fences: ContextVar[tuple[Callable[[], bool], ...]] = ContextVar("fences", default=())


@contextmanager
def fenced(holds: Callable[[], bool]) -> Iterator[None]:
    """Have what is written inside the block sent only if this, too, holds in that moment."""
    before = _fences.set((*_fences.get(), holds))
    try:
        yield
    finally:
        _fences.reset(before)


def may_send() -> bool:
    """Tell whether all blocks that we are in let a write be sent now."""
    return all(holds() for holds in _fences.get())


def fence_trace() -> aiohttp.TraceConfig:
    """Return what a client session needs for `fenced` to have an effect on it."""
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_ask)  # called before the chunk is written
    return trace


async def _ask(
    _: aiohttp.ClientSession, __: SimpleNamespace, ___: aiohttp.TraceRequestChunkSentParams
) -> None:
    if not may_send():
        raise aiohttp.ClientConnectionError("it must not be sent any more")
