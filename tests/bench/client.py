"""A plain client of the API server that counts what it asks for."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

__all__ = ["Client", "RefusedError", "client"]

Json = dict[str, Any]

READY_SECONDS = 60
_LINE_BYTES = 1 << 22
_NOT_YET = {404, 429, 500}
"""The storage of a kind is made a moment after its definition, and a webhook listens a moment after
its manager is ready."""
_EXPIRED = 410
"""The version from which to watch is too old
(https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes)."""


class RefusedError(RuntimeError):
    """An answer that is an error; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """JSON in and out; an answer that is an error raises.

    Attributes
    ----------
    requests
        How many writes were made, by verb and plural, as the API server's metrics name them.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.requests: Counter[tuple[str, str]] = Counter()

    async def get(self, path: str) -> Json:
        """Read an object or a list."""
        result: Json = orjson.loads(await self.text(path))
        return result

    async def text(self, path: str) -> bytes:
        """Read what stands at a path."""
        async with self._session.get(self._url + path) as response:
            return await _sound(response)

    async def post(self, path: str, body: Json) -> Json:
        """Create an object."""
        result: Json = orjson.loads(await self._write("POST", path, body))
        return result

    async def post_when_served(self, path: str, body: Json) -> None:
        """Create an object as soon as its kind is served."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    await self.post(path, body)
                except RefusedError as error:
                    if error.status not in _NOT_YET:
                        raise
                    await asyncio.sleep(0.1)
                else:
                    return

    async def patch(self, path: str, body: Json) -> None:
        """Merge a patch into an object."""
        await self._write("PATCH", path, body, "application/merge-patch+json")

    async def delete(self, path: str) -> None:
        """Delete an object."""
        await self._write("DELETE", path)

    async def _write(
        self, verb: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> bytes:
        self.requests[verb, _plural(path)] += 1
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(
            verb, self._url + path, data=data, headers={"Content-Type": kind}
        ) as response:
            return await _sound(response)

    async def watch(self, path: str, see: Callable[[str, Json], None]) -> None:
        """Tell of every object that is there, and of each event, until cancelled."""
        url = f"{self._url}{path}?watch=true&allowWatchBookmarks=true&resourceVersion="
        timeout = aiohttp.ClientTimeout(total=None)
        version = ""
        while True:  # the API server ends a watch now and then, above all after a change of a CRD
            if not version:
                listed = await self.get(path)
                for item in listed["items"]:
                    see("ADDED", item)
                version = listed["metadata"]["resourceVersion"]
            async with self._session.get(url + version, timeout=timeout) as response:
                if response.status != 200:
                    await _sound(response)
                async for line in response.content:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        if event["object"].get("code") != _EXPIRED:
                            raise RuntimeError(str(event["object"]))
                        version = ""  # what changed since is no longer known
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        see(event["type"], event["object"])


async def _sound(response: aiohttp.ClientResponse) -> bytes:
    data = await response.read()
    if response.status >= 300:
        said = f"{response.method} {response.url}: {data.decode()[:500]}"
        raise RefusedError(response.status, said)
    return data


def _plural(path: str) -> str:
    """Return the resource of a path below `/api/v1` or `/apis/<group>/<version>`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]


@asynccontextmanager
async def client(
    url: str, token: str = "", certificate: Path | None = None
) -> AsyncIterator[Client]:
    """Connect to the API server, with a bearer token if it asks for one."""
    trust = ssl.create_default_context(cafile=str(certificate)) if certificate else True
    connector = aiohttp.TCPConnector(limit=0, ssl=trust)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, read_bufsize=_LINE_BYTES
    ) as session:
        yield Client(session, url)
        await asyncio.sleep(0)
