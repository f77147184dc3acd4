"""Prevention of writes that became invalid while they waited to be sent.

The process may no longer be the leader, or the write may be obsolete. A check before the request
is not enough: while a request waits for a connection, the process may be stopped and continue long
after another process became the leader. So the check is repeated when the body is written to the
socket. Every write of Partita has a body, and has no effect without it.
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
    """Send writes of the block only if this condition still holds when they are sent."""
    before = _fences.set((*_fences.get(), holds))
    try:
        yield
    finally:
        _fences.reset(before)


def may_send() -> bool:
    """Return whether the conditions of all enclosing blocks hold now."""
    return all(holds() for holds in _fences.get())


def fence_trace() -> aiohttp.TraceConfig:
    """Return the trace that a client session needs for `fenced`."""
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_ask)  # called before the chunk is written
    return trace


async def _ask(
    _: aiohttp.ClientSession, __: SimpleNamespace, ___: aiohttp.TraceRequestChunkSentParams
) -> None:
    if not may_send():
        raise aiohttp.ClientConnectionError("the write must not be sent any more")
