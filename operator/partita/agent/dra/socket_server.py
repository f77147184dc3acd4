"""Serves gRPC services on a Unix socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from grpclib.protocol import H2Protocol
from grpclib.server import Handler, Server
from typing_extensions import override

from partita.agent.event_wait import ends_within

__all__ = ["serve"]

_CLOSE_DEADLINE: Final = 1.0
"""Seconds for calls to end."""


@asynccontextmanager
async def serve(path: Path, *services: Any) -> AsyncIterator[None]:
    """Serve services on a socket; at the end close its connections, and remove it."""
    _make_room(path)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(0)
        listening.bind(str(path))
        listening.listen()
        server = _Server([*services])
        loop.add_reader(listening, server.accept, listening)
        try:
            yield
        finally:
            # An error would take the place of the cancellation that ends the agent.
            with suppress(OSError):
                _make_room(path)
            loop.remove_reader(listening)
            await server.close_connections()


class _Server(Server):
    """A server that accepts connections itself, to be able to close every one of them.

    grpclib leaves them open until the clients go, and asyncio leaves one open that is being
    accepted while its server closes (https://github.com/python/cpython/issues/109564).
    """

    def __init__(self, services: list[Any]) -> None:
        super().__init__(services)
        self._connections: WeakSet[H2Protocol] = WeakSet()
        self._accepted: set[asyncio.Task[object]] = set()
        """Connections that are being made."""

    @override
    def _protocol_factory(self) -> H2Protocol:
        connection = super()._protocol_factory()
        self._connections.add(connection)
        return connection

    def accept(self, listening: socket.socket) -> None:
        """Accept a connection; after an error the event loop calls again."""
        with suppress(OSError):
            client, _ = listening.accept()
            connect = self._loop.connect_accepted_socket(self._protocol_factory, client)
            task = self._loop.create_task(connect)
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)

    async def close_connections(self) -> None:
        """Cancel the calls, wait for their ends, and close the connections."""
        await asyncio.gather(*self._accepted, return_exceptions=True)
        handlers = [c.handler for c in self._connections if isinstance(c.handler, Handler)]
        for handler in handlers:
            handler.close()
        closed = asyncio.gather(*(handler.wait_closed() for handler in handlers))
        await ends_within(_CLOSE_DEADLINE, closed)
        for connection in list(self._connections):
            connection.processor.close()


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
