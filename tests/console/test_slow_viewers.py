"""Viewers who do not read what the page's server sends."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from functools import partial
from urllib.parse import urlsplit

import pytest

from console.pages import Json, Page, stream
from console.sample_objects import GROUP_PATH, make_partition, put_status
from partita.times import Times
from support.api import Api

pytestmark = pytest.mark.usefixtures("clean")

MEBI = 1 << 20
LONGEST = 4096
"""Characters of a shadow policy's message, by the CRD."""
SHADOWS = [f"shadow-{i}" for i in range(8)]
CHATTY = [f"chatty-{i}" for i in range(MEBI // (len(SHADOWS) * LONGEST))]


async def chatty(api: Api, text: str, *, create: bool = False) -> None:
    """Have the shadow policies of partitions say as much as statuses may: 1 MiB in all."""
    messages = [{"name": name, "message": text * (LONGEST // len(text))} for name in SHADOWS]
    for name in CHATTY:
        if create:
            await make_partition(api, name, policy={"name": "fifo", "shadow": SHADOWS})
        await put_status(api, f"{GROUP_PATH}/gpupartitions/{name}", {"shadow": messages})


async def deaf(url: str) -> socket.socket:
    """Ask for the events and never read them."""
    where = urlsplit(url)
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.settimeout(0)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(silent, (where.hostname, where.port))
    await loop.sock_sendall(silent, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return silent


async def test_a_viewer_who_never_reads_is_dropped_and_his_place_is_free(
    http, serve, api: Api
) -> None:
    await chatty(api, "a", create=True)
    times = Times(viewer_patience=0.2, page_pause=0.0)
    async with serve(times=times, most_viewers=1) as url:
        silent = await deaf(url)
        status, said = 0, 0
        while status != 503:  # he has the one place
            async with stream(http, url) as response:
                status = response.status
        while status != 200:  # as soon as his connection is full he loses it
            said += 1
            await chatty(api, "abcdefgh"[said % 8])
            async with stream(http, url) as response:
                status = response.status
        silent.close()
    assert said < 40


def says(text: str, state: dict[str, Json]) -> bool:
    message: str = state[f"partition/{CHATTY[-1]}"]["shadow"][-1]["message"]
    return message.startswith(text)


def to_be_sent() -> int:
    """Bytes that the console has made to be sent, and that connections hold back."""
    places = [
        tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{place}")
        for place in (
            "partita/console/*.py",
            "aiohttp/http_writer.py",
            "asyncio/selector_events.py",
        )
    ]
    snapshot = tracemalloc.take_snapshot().filter_traces(places)
    return sum(line.size for line in snapshot.statistics("filename"))


async def test_what_a_viewer_does_not_read_is_not_kept(http, serve, api: Api) -> None:
    await chatty(api, "a", create=True)
    async with serve(times=Times(viewer_patience=600.0, page_pause=0.0)) as url:
        silent = await deaf(url)
        async with stream(http, url) as response:
            page = Page(response)

            async def say(texts: str) -> None:
                for text in texts:
                    await chatty(api, text)
                    await page.until(partial(says, text))
                page.wire = b""

            await page.read()
            await say("bcdefgh")  # fills the connection
            tracemalloc.start()
            before = to_be_sent()
            await say("lmn")
            after = to_be_sent()
            tracemalloc.stop()
        silent.close()
    assert after - before < MEBI  # of nearly 3 MiB that were sent
