"""A watch request for the changes of a kind of objects after a resource version."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import aiohttp
import orjson

from partita.fair_queue import FairQueue
from partita.kube.client import Kind, Kube
from partita.kube.errors import from_response, unanswered
from partita.kube.streams import stream
from partita.models.json_text import parse

__all__ = ["lines_in_turns", "watch"]

Events = AsyncIterator[tuple[str, dict[str, Any]]]

_READ_AHEAD: Final = 10_000
"""Lines that are read before those are taken that came first: 30 MB of jobs."""


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
        yield _events(kube, what, content)


async def _events(kube: Kube, what: str, content: aiohttp.StreamReader) -> Events:
    async for line in lines_in_turns(content):
        try:
            event = parse(line)
        except orjson.JSONDecodeError as error:
            raise unanswered(what, error) from error
        if event["type"] == "ERROR":
            code = int(event["object"].get("code", 500))
            raise from_response(what, code, orjson.dumps(event["object"]), None)
        yield event["type"], event["object"]
        await kube.turns.next()


async def lines_in_turns(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a watch, while namespaces take turns.

    So a change is not behind all that a flood in another namespace has changed before. The changes
    in one namespace stay in order, and what the API server says of the watch itself comes after
    them all: a bookmark is of use only when nothing else comes.
    """
    queue, lines, numbers = FairQueue[int](), dict[int, bytes](), count()
    rest = bytearray()
    while True:
        data = b""
        if not queue:
            data = await content.readany()
        elif len(queue) < _READ_AHEAD and content.exception() is None:
            data = content.read_nowait()
        rest += data
        # aiohttp's `readline` rejects the lines of large objects.
        *new, last = bytes(rest).split(b"\n") if b"\n" in data else (rest,)
        rest = bytearray(last)
        for line in new:
            number, namespace = next(numbers), _changed_namespace(line)
            lines[number] = line
            queue.add(number, namespace or "", rank=namespace is None)
        if queue:
            yield lines.pop(queue.pop())
        elif not data:
            return


def _changed_namespace(line: bytes) -> str | None:
    """Return the namespace of the object that has changed; None if the line says something else."""
    try:
        event: dict[str, Any] = parse(line)
    except orjson.JSONDecodeError:
        return None
    if event["type"] not in {"ADDED", "MODIFIED", "DELETED"}:
        return None
    namespace: str = event["object"]["metadata"].get("namespace", "")
    return namespace
