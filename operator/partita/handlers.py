"""The face of the operator: what kopf calls for what people write, GPUPartitions and SharedGPUJobs.

kopf starts the operator's tasks, finds the two kinds, watches them, connects again after errors,
handles the signals that stop the process, and keeps an error about one object from the others. It
runs while the Lease is held, and writes nothing. What machines write comes by an informer a kind
(docs/watching.md says why, with figures).

kopf's own lists would cost ten times an informer's, and would report neither what was deleted
during a gap in a watch nor, until they are through, what is new. So its requests for lists are
answered from the informer's: the version of the list, and no objects. Its watches follow from there
at once, and after 410 Gone an informer lists again. And in its watches namespaces take turns, and
the operator's own writes are left out: kopf needs .6 ms for an event.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import kopf
import orjson
from typing_extensions import override

from partita.kube.client import JOBS, PARTITIONS, Kind, Kube
from partita.kube.connect import session
from partita.kube.watch import lines_in_turns
from partita.models import SharedGPUJob
from partita.models.json_text import parse
from partita.store.informer import Apply
from partita.times import Times

__all__ = ["FOLLOWED", "REGISTRY", "Operator", "Version"]

FOLLOWED = (PARTITIONS, JOBS)
"""The kinds that kopf watches."""

USUAL_RECURSION_LIMIT = sys.getrecursionlimit()
"""Read before any operator raises it: several may run in one process, in tests."""
RECURSION_LIMIT = 11_000
"""Python's recursion limit while kopf runs. kopf reads objects with Python's own JSON parser, which
recurses for each level, and the API server accepts 10,000 levels (`maxNestingDepth` of Go's
encoding/json), in `managedFields` for example. Python's usual limit is 1,000; then one such
object would end kopf, and with it each operator that starts."""

Version = Callable[[], Awaitable[str]]

REGISTRY = kopf.OperatorRegistry()


@dataclass(slots=True)
class Operator:
    """What the handlers use; kopf hands it to them as `memo`."""

    kube: Kube
    versions: Mapping[Kind, Version]
    """By kind of `FOLLOWED`: lists the objects unless that has just been done; returns a version
    from which to watch."""
    changed: Mapping[Kind, Apply]
    """By kind: called with each change of an object."""
    start: Callable[[], None]
    """Starts the operator's tasks."""
    jobs: Mapping[str, SharedGPUJob]
    """The jobs as they are known, by UID."""
    session: kopf.AiohttpSession | None = None
    """kopf's connection."""


@kopf.on.startup(registry=REGISTRY)
async def start(settings: kopf.OperatorSettings, memo: Operator, **_: Any) -> None:
    """Let kopf only watch, and start the operator's tasks."""
    settings.posting.enabled = False  # Partita writes its own Events
    settings.scanning.disabled = True  # it may not watch CRDs: `crd_check` does that
    settings.persistence.diffbase_storage = _NoDiffs([])
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.persistence.finalizer = ""  # it would take off its own, and no object can have this
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = _Pauses(memo.kube.times)
    settings.watching.reconnect_backoff = memo.kube.times.watch_pause
    settings.watching.server_timeout = round(memo.kube.times.watch)
    settings.watching.client_timeout = memo.kube.times.watch + 30
    settings.watching.chunk_size = 1  # see `_responses`
    sys.setrecursionlimit(RECURSION_LIMIT)
    memo.start()


@kopf.on.login(registry=REGISTRY)
async def log_in(memo: Operator, **_: Any) -> kopf.AiohttpSession:
    """Connect as Partita's own client does, with the token of the day in each request.

    A connection that was refused is not replaced: kopf ends, instead of asking again and again.
    """
    if memo.session is None:
        memo.session = kopf.AiohttpSession(
            server=memo.kube.api.configuration.host,
            aiohttp_session=session(memo.kube.api, _responses(memo)),
        )
    return memo.session


@kopf.on.event(PARTITIONS.group, PARTITIONS.version, PARTITIONS.plural, registry=REGISTRY)
async def partition_changed(event: kopf.RawEvent, memo: Operator, **_: Any) -> None:
    """Put a partition into the state."""
    memo.changed[PARTITIONS](_cut(event["object"]), deleted=event["type"] == "DELETED")


@kopf.on.event(JOBS.group, JOBS.version, JOBS.plural, registry=REGISTRY)
async def job_changed(event: kopf.RawEvent, memo: Operator, **_: Any) -> None:
    """Put a job into the state."""
    memo.changed[JOBS](_cut(event["object"]), deleted=event["type"] == "DELETED")


@kopf.on.cleanup(registry=REGISTRY)
async def clean_up(**_: Any) -> None:
    """Leave the process as it was."""
    sys.setrecursionlimit(USUAL_RECURSION_LIMIT)


def _responses(memo: Operator) -> type[aiohttp.ClientResponse]:
    """Return the class of responses in which a list is the informer's, without its objects.

    kopf asks for lists of one object, whose answer is not used. In watches namespaces take turns.
    """
    lists = {f"{kind.kind}List": version for kind, version in memo.versions.items()}

    class Response(aiohttp.ClientResponse):
        @override
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            self.content = cast("aiohttp.StreamReader", _InTurns(self.content, memo))
            return self

        @override
        async def json(self, **options: Any) -> Any:
            body = await super().json(**options)
            if (version := lists.get(body.get("kind"))) is None:
                return body
            return {"metadata": {"resourceVersion": await version()}, "items": []}

    return Response


@dataclass(frozen=True, slots=True)
class _InTurns:
    """The content of a response; in that of a watch namespaces take turns.

    kopf gets no version of a job that is known from the response to the operator's own write.
    """

    content: aiohttp.StreamReader
    memo: Operator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.content, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        """Yield one line after the other: kopf reads only watches like this."""
        async for line in lines_in_turns(self.content):
            if (known := _known(line, self.memo.jobs)) is None:
                yield line + b"\n"
            else:
                self.memo.changed[JOBS](known)
            await self.memo.kube.turns.next()  # kopf starts a task for each line


def _known(line: bytes, jobs: Mapping[str, SharedGPUJob]) -> Any:
    """Return the job of which a watch tells, if this version is known; else None."""
    try:
        event = parse(line)
    except orjson.JSONDecodeError:
        return None
    meta = event["object"].get("metadata", {})
    job = jobs.get(meta.get("uid", ""))
    if job is None or event["type"] == "DELETED":
        return None
    known = int(job.metadata.resource_version) >= int(meta["resourceVersion"])
    return event["object"] if known else None


def _cut(body: Any) -> Any:
    """Return an object without levels that are nested too deeply, as Partita's own client reads it.

    orjson writes 254 levels (https://github.com/ijl/orjson#serialize).
    """
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return parse(json.dumps(body))
    return body


@dataclass(frozen=True, slots=True)
class _Pauses:
    """Between the attempts of a request, without an end: the API server comes back at some time."""

    times: Times

    def __iter__(self) -> Iterator[float]:
        pause = self.times.watch_pause
        while True:
            yield pause
            pause = min(2 * pause, self.times.longest_watch_pause)


class _NoDiffs(kopf.MultiDiffBaseStorage):
    """Finds nothing worth a comparison in any object: no handler asks for differences."""

    @override
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()
