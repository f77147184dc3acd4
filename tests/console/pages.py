"""What a page does with the console: it reads events, and asks for more."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from support.polling import TIMEOUT

__all__ = ["Json", "Page", "get", "stream"]

Json = dict[str, Any]


class Page:
    """What a page knows after the events that it has read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._rest = b""
        self.wire = b""
        self.state: dict[str, Json] = {}
        self.history: dict[str, Any] = {}

    async def read(self) -> tuple[str, Json]:
        """Take in the next event."""
        async with asyncio.timeout(TIMEOUT):
            while b"\n\n" not in self._rest:
                chunk = await self._response.content.readany()
                if not chunk:
                    raise EOFError
                self._rest += chunk
                self.wire += chunk
        event, _, self._rest = self._rest.partition(b"\n\n")
        first, second = event.decode().split("\n")
        name, data = first.removeprefix("event: "), json.loads(second.removeprefix("data: "))
        if name == "state":
            for key, fields in data.get("set", {}).items():
                self.state[key] = self.state.get(key, {}) | fields
            for key in data.get("gone", ()):
                del self.state[key]
        if name == "history":
            self.history |= data
        return name, data

    async def next_of(self, event: str) -> Json:
        """Return the data of the next event of a name."""
        while (found := await self.read())[0] != event:
            pass
        return found[1]

    async def until(self, holds: Any) -> None:
        while not holds(self.state):
            await self.read()


def stream(
    http: aiohttp.ClientSession, url: str, token: str = "", path: str = "events", **query: str
) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return http.get(f"{url}/{path}", headers=headers, params=query)


async def get(
    http: aiohttp.ClientSession, url: str, token: str = "", method: str = "GET", **query: str
) -> Any:
    """Send a request as the page does; `method` is POST for a change."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = {"json": {}} if method == "POST" else {}
    async with http.request(method, url, params=query, headers=headers, **body) as answer:
        return answer.status, await (answer.json() if answer.ok else answer.text())
