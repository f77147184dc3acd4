"""What an informer reports while its list and its watches fail in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from kube.conftest import Answer, Server, answer, cut, failure
from partita.kube.client import PODS, Kube
from partita.kube.errors import ForbiddenError, NotFoundError
from partita.store.informer import Informer
from partita.times import Times
from support.meanwhile import running
from support.polling import TIMEOUT, until

pytestmark = pytest.mark.usefixtures("pauses")

Json = dict[str, Any]
QUICK = Times(watch_pause=0.001, longest_watch_pause=0.001)


def pod(name: str, version: str) -> Json:
    return {"metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": version}}


def listing(version: str, *names: str) -> Answer:
    return answer(
        200, {"metadata": {"resourceVersion": version}, "items": [pod(n, "1") for n in names]}
    )


def events(*lines: tuple[str, Json] | str, end: str = "close") -> Answer:
    """A watch that sends these events and then ends, stays open or breaks off."""

    async def step(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            event = (
                line if isinstance(line, str) else json.dumps({"type": line[0], "object": line[1]})
            )
            await response.write(f"{event}\n".encode())
        if end == "abort":
            return cut(request)
        if end == "open":
            await asyncio.Event().wait()
        return response

    return step


class Reports:
    """What an informer reported, in order. Nobody can apply `b`, which does not stop the others."""

    def __init__(self, kube: Kube, order: Callable[[Json], int] = lambda _: 0) -> None:
        self.seen: list[str] = []
        self.failing: list[bool] = []
        self.informer = Informer(
            kube, PODS, self._apply, order=order, on_change=self._changed, times=QUICK
        )

    def _apply(self, body: Json, *, deleted: bool = False) -> None:
        self.seen.append(("-" if deleted else "") + body["metadata"]["name"])
        if body["metadata"]["name"] == "b":
            raise ValueError("a bug")

    def _changed(self) -> None:
        self.failing.append(self.informer.failing_since is not None)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with running(self.informer.run()):
            await until(holds)

    async def reach(self, *expected: str) -> None:
        await self.until(lambda: len(self.seen) >= len(expected))
        assert self.seen == list(expected)


async def test_a_dropped_watch_continues_where_it_ended(kube: Kube, server: Server) -> None:
    server.answers = [
        listing("7", "a"),
        events(("ADDED", pod("b", "8")), ("BOOKMARK", pod("", "9"))),
        events(("MODIFIED", pod("b", "10")), end="abort"),
        events('{"type": "ADD'),
        failure(503),
        events(("DELETED", pod("b", "11")), end="open"),
    ]
    await Reports(kube).reach("a", "b", "b", "-b")
    versions = [request.query.get("resourceVersion") for request in server.asked]
    assert versions == [None, "7", "9", "10", "10", "10"]


@pytest.mark.parametrize(
    "expired", [events(("ERROR", {"code": 410, "reason": "Expired"})), failure(410)]
)
async def test_objects_deleted_during_a_gap_are_reported_after_it(
    kube: Kube, server: Server, expired: Answer
) -> None:
    server.answers = [
        listing("7", "a"),
        expired,
        listing("20"),
        failure(410),
        listing("20", "c", "b"),
        events(("ADDED", pod("d", "21")), end="open"),
    ]
    await Reports(kube).reach("a", "-a", "c", "b", "d")


async def test_a_deleted_object_is_reported_by_its_identity(kube: Kube, server: Server) -> None:
    body = pod("a", "5")
    body["metadata"] |= {"namespace": "team", "labels": {"large": "x" * 1000}}
    gone: list[Json] = []

    def apply(body: Json, *, deleted: bool = False) -> None:
        if deleted:
            gone.append(body)

    server.answers = [
        answer(200, {"metadata": {"resourceVersion": "7"}, "items": [body]}),
        listing("8"),
    ]
    informer = Informer(kube, PODS, apply, times=QUICK)
    await informer.list()
    await informer.list()
    assert gone == [
        {"metadata": {"name": "a", "namespace": "team", "uid": "a-uid", "resourceVersion": "5"}}
    ]


async def test_a_list_that_fails_half_way_reports_no_deletions(kube: Kube, server: Server) -> None:
    page = {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": [pod("a", "1")]}
    server.answers = [
        listing("7", "a", "b"),
        failure(410),
        answer(200, page),
        failure(403),
        listing("9", "a", "b"),
        events(("ADDED", pod("c", "10")), end="open"),
    ]
    await Reports(kube).reach("a", "b", "a", "b", "c")


async def test_a_kind_that_is_not_served_yet_is_an_empty_list(kube: Kube, server: Server) -> None:
    server.answers = [failure(404), listing("1", "a"), events(end="open")]
    reports = Reports(kube)
    await reports.informer.list()
    assert reports.informer.synced.is_set()
    await reports.reach("a")


async def test_a_required_kind_that_is_not_served_is_an_error(kube: Kube, server: Server) -> None:
    server.answers = [failure(404), listing("1", "a"), failure(404)]
    required = Informer(kube, PODS, lambda *_, **__: None, required=True, times=QUICK)
    with pytest.raises(NotFoundError):
        await required.list()
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(NotFoundError):
            await required.run()
    assert server.asked[-1].query["watch"] == "true"


async def test_a_reader_that_remembers_objects_gets_pages_and_what_the_whole_list_has(
    kube: Kube, server: Server
) -> None:
    page = {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": [pod("a", "1")]}
    server.answers = [answer(200, page), failure(410), listing("12", "b", "c")]
    told: list[object] = []
    informer = Informer(
        kube,
        PODS,
        lambda body, **_: told.append(body["metadata"]["name"]),
        forget_missing=lambda uids, version: told.append((sorted(uids), version)),
    )
    await informer.list()
    assert told == ["a", "b", "c", (["b-uid", "c-uid"], 12)]


async def test_listed_objects_come_in_the_order_asked_for(kube: Kube, server: Server) -> None:
    server.answers = [listing("1", "b", "c", "a"), events(end="open")]
    reports = Reports(kube, order=lambda body: -ord(body["metadata"]["name"]))
    await reports.reach("c", "b", "a")


async def test_a_first_list_that_is_refused_is_an_error(kube: Kube, server: Server) -> None:
    server.answers = [failure(403)]
    with pytest.raises(ForbiddenError):
        async with asyncio.timeout(TIMEOUT):
            await Reports(kube).informer.run()


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(
    kube: Kube, server: Server
) -> None:
    server.answers = [*[failure(503)] * 8, listing("1", "a"), events(end="open")]
    await Reports(kube).reach("a")


async def test_a_watch_that_is_refused_is_reported_until_it_opens_again(
    kube: Kube, server: Server
) -> None:
    server.answers = [listing("1"), failure(403), failure(503), events(end="open")]
    reports = Reports(kube)
    await reports.until(lambda: True in reports.failing and not reports.failing[-1])
    assert reports.failing == [False, True, False]
