"""The gRPC sockets on which kubelet and other agents reach an agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partita.agent.dra.socket_server import serve
from support.polling import TIMEOUT


async def test_the_end_closes_the_connections_and_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    async with serve(path):
        reader, writer = await asyncio.open_unix_connection(path)
        await reader.readexactly(1)  # the server greets each connection that it has accepted
    async with asyncio.timeout(TIMEOUT):
        await reader.read()  # to its end
    assert not path.exists()
    writer.close()
    await writer.wait_closed()
