"""`partita console` as a process: where it listens, what it asks for, how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.output import check_output
from support.polling import TIMEOUT
from support.programs import program


@asynccontextmanager
async def console(
    server: ApiServer, *args: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the command; yields it and the first line that it says."""
    kubeconfig = str(server.kubeconfig_of("partita-console"))
    command = (sys.executable, "-m", "partita", "console", "--kubeconfig", kubeconfig, *args)
    async with program(*command) as process, asyncio.timeout(TIMEOUT):
        assert process.stderr is not None
        yield process, (await process.stderr.readline()).decode().strip()


@pytest.mark.parametrize(("args", "status"), [((), 200), (("--in-cluster",), 401)])
async def test_it_says_where_it_is_and_asks_for_tokens_in_a_cluster(
    api_server: ApiServer, api: Api, args: tuple[str, ...], status: int
) -> None:
    await install_crds(api)
    async with console(api_server, "--port", "0", "-o", "json", *args) as (process, said):
        served = check_output("console", (await process.stdout.readuntil(b"}\n")).decode())
        assert said == f"open {served['url']}"
        url = f"http://127.0.0.1:{said.rpartition(':')[2]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as page:
                assert "<title>Partita</title>" in await page.text()
            async with session.get(f"{url}/events") as events:
                assert events.status == status
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_a_taken_port_is_told_with_what_to_do(api_server: ApiServer, api: Api) -> None:
    await install_crds(api)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with console(api_server, "--port", str(port)) as (process, error):
            assert error.startswith(f"Error: port {port} cannot be used")
            assert "--port" in error
            assert await process.wait() == 1
