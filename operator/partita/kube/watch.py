"""A watch request for the changes of a kind of objects after a resource version."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from partita.kube.client import Kind, Kube
from partita.kube.errors import from_response, unanswered
from partita.kube.streams import stream
from partita.models.json_text import parse

__all__ = ["watch"]

Events = AsyncIterator[tuple[str, dict[str, Any]]]


@asynccontextmanager
async def watch(
    kube: Kube, kind: Kind, version: str = "", *, name: str = "", namespace: str = ""
) -> AsyncIterator[Events]:
    """Open a watch, and yield the type and object of each change until the API server ends it.

    Parameters
    ----------
    version
        The changes after this resource version are sent. If it is empty, the current objects are
        sent first, as `ADDED`
        (https://kubernetes.io/docs/reference/using-api/api-concepts/#the-resourceversion-parameter).
    name
        Only the object of this name; empty for all.
    namespace
        Only objects in this namespace; empty for all.

    Raises
    ------
    GoneError
        If the version is too old, so that a new list is needed.
    KubernetesError
        If the watch is rejected or the connection breaks.
    """
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(round(kube.times.watch)),
    }
    if name:
        query["fieldSelector"] = f"metadata.name={name}"
    what = f"watch {kind.plural}"
    # The time limit detects a connection that broke without being closed.
    path, seconds = kind.path(namespace=namespace), kube.times.watch + 30
    async with stream(kube.api, what, path, query, seconds=seconds) as content:
        yield _events(what, content)


async def _events(what: str, content: aiohttp.StreamReader) -> Events:
    async for line in _lines(content):
        try:
            event = parse(line)
        except orjson.JSONDecodeError as error:
            raise unanswered(what, error) from error
        if event["type"] == "ERROR":
            code = int(event["object"].get("code", 500))
            raise from_response(what, code, orjson.dumps(event["object"]), None)
        yield event["type"], event["object"]


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split the content at line ends. aiohttp's `readline` rejects the lines of large objects."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        if b"\n" not in chunk:
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            yield line
