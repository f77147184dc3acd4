"""TCP ports for servers that a test starts, which nobody else can get meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

__all__ = ["new_port", "port"]


@pytest.fixture
def new_port() -> Iterator[Callable[[], int]]:
    """Return ports on which servers can listen during the test.

    Each is bound by a socket that does not listen. Linux gives such a port to nobody who asks for
    any port, and lets a server bind it that sets `SO_REUSEADDR`, as those of asyncio do.
    """
    with ExitStack() as stack:

        def reserve() -> int:
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))
            return int(reserved.getsockname()[1])

        yield reserve


@pytest.fixture
def port(new_port: Callable[[], int]) -> int:
    """Return one such port."""
    return new_port()
