"""Serves gRPC services on a Unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from grpclib.protocol import H2Protocol
from grpclib.server import Server
from typing_extensions import override

__all__ = ["serve"]

_CLOSE_DEADLINE: Final = 1.0
"""Seconds for calls to end, and for clients to close their connections."""


@asynccontextmanager
async def serve(path: Path, *services: Any) -> AsyncIterator[None]:
    """Serve services on a socket; at the end close its connections, and remove it."""
    _make_room(path)
    server = _Server([*services])
    await server.start(path=str(path))
    try:
        yield
    finally:
        _make_room(path)
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_DEADLINE):
                await server.wait_closed()
        server.close_connections()


class _Server(Server):
    """A server that can close its connections; grpclib leaves them open until the clients go."""

    def __init__(self, services: list[Any]) -> None:
        super().__init__(services)
        self._protocols: WeakSet[H2Protocol] = WeakSet()

    @override
    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        self._protocols.add(protocol)
        return protocol

    def close_connections(self) -> None:
        for protocol in list(self._protocols):
            if hasattr(protocol, "processor"):  # it has been connected
                protocol.processor.close()


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
