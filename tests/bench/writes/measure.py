"""Makes the requests of two variants in turns, and measures the API server's CPU time."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.scale.client import Client, RefusedError
from bench.writes.cbor import encoded
from bench.writes.variant import CBOR, OBJECTS, Comparison, Json, Variant

__all__ = ["Cost", "Costs", "measure"]

_IDLE_SECONDS = 3
_READY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of the API server a request, milliseconds: median and quartiles of the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What both variants of a comparison cost, and the second relative to the first."""

    before: Cost
    after: Cost
    ratio: Cost


async def measure(
    api: Client,
    pid: int,
    comparison: Comparison,
    *,
    rounds: int,
    requests: int,
) -> Costs:
    """Compare two variants.

    Parameters
    ----------
    pid
        The API server's process.
    rounds
        How often the requests of each variant are made and measured. One more round comes first,
        which is not counted.
    requests
        Requests of a variant in a round.
    """
    variants = comparison.before, comparison.after
    prepared = [await _Prepared.of(api, variant) for variant in variants]
    watches = [asyncio.create_task(_watch(api, variant.collection)) for variant in variants]
    try:
        idle = await _idle(pid)
        measured: list[list[float]] = [[], []]
        for number in range(rounds + 1):
            # Each variant comes first in every other round.
            for which in (0, 1) if number % 2 else (1, 0):
                cost = await _round(pid, prepared[which], requests, idle)
                if number:
                    measured[which].append(cost)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    for one in prepared:
        await one.remove()
    ratios = [after / before for before, after in zip(*measured, strict=True)]
    return Costs(_cost(measured[0]), _cost(measured[1]), _cost(ratios))


def _cost(values: list[float]) -> Cost:
    if len(values) < 2:
        return Cost(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Cost(median, low, high)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, to the microsecond; that in `stat` is in hundredths.

    Threads that have ended are missing. Go keeps the threads that it has.
    """
    each = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in each) / 1e9


async def _idle(pid: int) -> float:
    """Return the CPU time that the API server uses without requests, seconds a second."""
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(_IDLE_SECONDS)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


async def _round(pid: int, prepared: _Prepared, requests: int, idle: float) -> float:
    await prepared.make_ready(requests)
    before, began = cpu_seconds(pid), time.monotonic()
    await prepared.request(requests)
    busy = cpu_seconds(pid) - before - idle * (time.monotonic() - began)
    return 1000 * busy / requests


async def _watch(api: Client, collection: str) -> None:
    """Watch the objects as the operator does: an event for it is made of each write."""
    await api.watch(collection, lambda *_: None)


_series = itertools.count()


class _Prepared:
    """The objects of a variant."""

    def __init__(self, api: Client, variant: Variant) -> None:
        self._api = api
        self._variant = variant
        self._series = next(_series)
        self._made = 0
        self._names: list[str] = []
        self._last: dict[int, Json] = {}
        """The objects that are replaced as a whole, as they were written last."""

    @classmethod
    async def of(cls, api: Client, variant: Variant) -> _Prepared:
        """Install the kind of a variant and create its objects."""
        self = cls(api, variant)
        if variant.definition is not None:
            await api.post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", variant.definition
            )
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                try:
                    await api.get(variant.collection)
                    break
                except RefusedError as error:
                    if error.status not in {404, 429}:
                        raise
                    await asyncio.sleep(0.1)
        if variant.how[0] not in {"POST", "DELETE"}:
            for _ in range(OBJECTS):
                await self._create()
        return self

    async def make_ready(self, requests: int) -> None:
        """Create what so many requests delete."""
        if self._variant.how[0] == "DELETE":
            self._names.clear()
            for _ in range(requests):
                await self._create()

    async def _create(self) -> None:
        variant = self._variant
        made = self._named(variant.object)
        await self._api.post(variant.collection, made)
        path = f"{variant.collection}/{made['metadata']['name']}"
        for patch in variant.prepare:
            await self._api.patch(path, patch)
        if variant.status:
            await self._api.patch(f"{path}/status", {"status": variant.status})
        self._names.append(made["metadata"]["name"])

    def _named(self, body: Json) -> Json:
        self._made += 1
        return {
            **body,
            "metadata": {**body.get("metadata", {}), "name": f"bench-{self._series}-{self._made}"},
        }

    async def request(self, count: int) -> None:
        """Make requests, at the same time to different objects."""

        async def of_one(index: int) -> None:
            for number in range(index, count, OBJECTS):
                await self._one(index, number)

        await asyncio.gather(*map(of_one, range(OBJECTS)))

    async def _one(self, index: int, number: int) -> None:
        variant = self._variant
        method, content_type = variant.how
        if method == "POST":
            body = self._named(variant.body(variant.object, number))
            path = variant.collection
        else:
            body = variant.body(variant.object, number)
            name = self._names[number if method == "DELETE" else index]
            path = f"{variant.collection}/{name}"
        if method == "PUT":
            body = {**(self._last.get(index) or await self._api.get(path)), **body}
        if variant.subresource:
            path += f"/{variant.subresource}"
        data = encoded(body) if content_type == CBOR else orjson.dumps(body)
        answer = await self._api.send(
            method, path + variant.query, data, content_type, variant.accept
        )
        if method == "PUT":
            self._last[index] = orjson.loads(answer)

    async def remove(self) -> None:
        """Remove the objects, so that the API server is as it was for the next comparison."""
        definition = self._variant.definition
        if definition is not None:
            name = definition["metadata"]["name"]
            kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await self._api.delete(f"{kinds}/{name}")
        else:
            await self._api.delete(f"{self._variant.collection}?gracePeriodSeconds=0")
