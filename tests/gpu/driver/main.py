"""Starts the driver of the folders of `state.h` that are its arguments.

Without arguments it is the driver of one folder after the other: lines of its input are
`start <folder>` and `end <folder>`, each answered by `ok`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from driver import Driver


class Served:
    """One folder, and the connections to its driver."""

    def __init__(self, folder: Path) -> None:
        self._driver = Driver(folder)
        self._path = folder / "driver.sock"
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._path.chmod(0o666)

    async def end(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._driver.serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        await connection


async def serve(folders: list[str]) -> None:
    """Serve them until SIGTERM."""
    for folder in folders:
        await Served(Path(folder)).start()
    await asyncio.get_running_loop().create_future()


async def serve_in_turn() -> None:
    """Serve what the input says until it ends."""
    served: dict[str, Served] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, folder = line.split()
        if word == "start":
            served[folder] = Served(Path(folder))
            await served[folder].start()
        else:
            await served.pop(folder).end()
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]) if sys.argv[1:] else serve_in_turn())
