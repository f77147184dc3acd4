"""A plain client of the Kubernetes API for tests: paths in, status and JSON out.

It adds nothing of its own: what a test sends and what it gets back is what stood on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from partita.models.json_text import parse
from support.polling import TIMEOUT, until

__all__ = ["APPLY", "MERGE", "STRATEGIC", "Answer", "Api", "Watch", "condition"]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def condition(body: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty where it is not there."""
    for entry in body.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry["status"], entry.get("reason", "")
    return "", ""


@dataclass(frozen=True)
class Answer:
    """One answer: its status, its JSON (or text) and its headers."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def version(self) -> str:
        """The ``resourceVersion`` of the object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """The names of a list's items, in its order."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    def ok(self) -> Answer:
        """Return itself; fail the test with the body when it is an error."""
        assert self.status < 400, (self.status, self.body)
        return self


class Watch:
    """The events of one watch, in order."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._rest = b""
        self.status = response.status

    async def next(self, seconds: float | None = TIMEOUT) -> tuple[str, dict[str, Any]]:
        """Return the next event's type and object; bookmarks count as events.

        Raises
        ------
        EOFError
            The server has ended the watch.
        TimeoutError
            No event came in time.
        """
        assert self.status == 200, await self._response.text()
        async with asyncio.timeout(seconds):
            event = parse(await self._line())
        return event["type"], event["object"]

    async def _line(self) -> bytes:
        """Return the next line; aiohttp's own `readline` refuses those as long as objects may be."""
        while b"\n" not in self._rest:
            chunk = await self._response.content.readany()
            if not chunk:
                raise EOFError
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def until(self, kind: str, name: str) -> dict[str, Any]:
        """Return the object of the first event of this type and name; others are passed over."""
        while True:
            got, obj = await self.next()
            if got == kind and obj["metadata"].get("name") == name:
                return obj

    async def rest(self, seconds: float = TIMEOUT) -> list[tuple[str, dict[str, Any]]]:
        """Return the events up to the watch's end."""
        events = []
        with contextlib.suppress(EOFError):
            while True:
                events.append(await self.next(seconds))
        return events


class Api:
    """One HTTP session with an API server."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, *, ssl_context: ssl.SSLContext | None
    ) -> None:
        self._session = session
        self._url = url
        self._ssl = ssl_context if ssl_context is not None else True

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **params: str | int,
    ) -> Answer:
        """Send one request; a ``str`` or ``bytes`` body goes out as it is, others as JSON."""
        data = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        headers = {"Accept": accept}
        if data is not None:
            headers["Content-Type"] = content_type
        async with self._session.request(
            method,
            self._url + path,
            data=data,
            headers=headers,
            params={name: str(value) for name, value in params.items()},
            ssl=self._ssl,
        ) as response:
            text = await response.text()
            # kube-apiserver sends its OpenAPI index as text/plain: go by the text.
            parsed = parse(text) if text.startswith("{") else text
            return Answer(response.status, parsed, dict(response.headers))

    async def get(self, path: str, **params: Any) -> Answer:
        """Read; wait while the API server is about to serve a kind whose CRD has changed."""
        async with asyncio.timeout(TIMEOUT):
            while (answer := await self.call("GET", path, **params)).status == 429:
                await asyncio.sleep(float(answer.headers["Retry-After"]))
        return answer

    async def post(self, path: str, body: Any, **params: Any) -> Answer:
        return await self.call("POST", path, body, **params)

    async def put(self, path: str, body: Any, **params: Any) -> Answer:
        return await self.call("PUT", path, body, **params)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **params: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, **params)

    async def apply(self, path: str, body: Any, manager: str, **params: Any) -> Answer:
        """Server-side apply as field manager ``manager``."""
        return await self.patch(path, body, APPLY, fieldManager=manager, **params)

    async def delete(self, path: str, body: Any = None, **params: Any) -> Answer:
        return await self.call("DELETE", path, body, **params)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **params: str | int
    ) -> AsyncIterator[Watch]:
        """Watch a collection; the caller closes it by leaving the context."""
        async with self._session.get(
            self._url + path,
            params={"watch": "true"} | {name: str(value) for name, value in params.items()},
            headers={"Accept": accept},
            ssl=self._ssl,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            yield Watch(response)

    async def until(
        self, path: str, holds: Callable[[Any], Any], seconds: float = TIMEOUT
    ) -> dict[str, Any]:
        """Return the object at ``path`` once it exists and a condition holds for it.

        Raises
        ------
        AssertionError
            It does not hold within ``seconds``; the message has the last answer.
        """
        last = Answer(0, None)

        async def held() -> bool:
            nonlocal last
            last = await self.get(path)
            return last.status == 200 and bool(holds(last.body))

        await until(held, seconds, what=lambda: (path, last))
        body: dict[str, Any] = last.body
        return body

    async def gone(self, path: str, seconds: float = TIMEOUT) -> None:
        """Wait until ``path`` answers 404."""

        async def missing() -> bool:
            return (await self.get(path)).status == 404

        await until(missing, seconds, what=f"{path} still exists")
