"""The gRPC sockets on which kubelet and other agents reach an agent."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

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


async def test_the_end_comes_though_the_socket_cannot_be_removed(tmp_path: Path) -> None:
    async with serve(tmp_path / "agent.sock"):
        (tmp_path / "agent.sock").unlink()
        (tmp_path / "agent.sock").mkdir()


@pytest.mark.parametrize("turns", range(8))
async def test_the_end_closes_a_connection_that_is_just_being_made(tmp_path: Path, turns: int):
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        async with serve(path):
            client.connect(str(path))
            for _ in range(turns):  # of the event loop: the server accepts it in one of them
                await asyncio.sleep(0)
        with suppress(ConnectionResetError):  # it was not accepted
            while await asyncio.to_thread(client.recv, 1000):
                pass
