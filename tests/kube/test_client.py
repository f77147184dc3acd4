"""The client of the API: what it repeats, what it does not, and what it says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from kube.conftest import Server, answer, cut, failure
from partita.kube.client import EVENTS, JOBS, PARTITIONS, PODS, SERVERS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubernetesError,
    NotFoundError,
    UnavailableError,
    from_response,
)
from partita.kube.fence import fence_trace, fenced

POD = {"metadata": {"name": "train-1", "namespace": "team-a", "resourceVersion": "7"}}
WRITES: list[Callable[[Kube], Awaitable[Any]]] = [
    lambda kube: kube.create(PODS, POD),
    lambda kube: kube.replace(PODS, POD),
    lambda kube: kube.patch(PODS, "train-1", {}, namespace="team-a"),
    lambda kube: kube.delete(PODS, "train-1", "team-a"),
]


class TestRequests:
    async def test_paths_and_bodies_are_those_of_the_api(self, kube: Kube, server: Server):
        server.answers = [answer(200, {"ok": True})]
        assert await kube.get(PARTITIONS, "shared") == {"ok": True}
        await kube.create(PODS, POD)
        await kube.patch(
            SERVERS, "s-0", {"status": {"a": None}}, subresource="status", resource_version="9"
        )
        await kube.delete(JOBS, "train", "team-a", uid="u-1", grace=0)
        get, create, patch, delete = server.asked
        assert (get.method, get.path) == ("GET", "/apis/partita.dev/v1alpha1/gpupartitions/shared")
        assert (create.method, create.path) == ("POST", "/api/v1/namespaces/team-a/pods")
        assert create.body == {"apiVersion": "v1", "kind": "Pod", **POD}
        assert patch.path == "/apis/partita.dev/v1alpha1/gpuservers/s-0/status"
        assert patch.headers["Content-Type"] == "application/merge-patch+json"
        assert patch.body == {"status": {"a": None}, "metadata": {"resourceVersion": "9"}}
        assert delete.path.endswith("/namespaces/team-a/sharedgpujobs/train")
        assert delete.body == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u-1"},
            "gracePeriodSeconds": 0,
        }
        assert get.headers["User-Agent"] == "partita"
        written = [call.query for call in (create, patch)]
        assert written == [{"fieldManager": "partita", "fieldValidation": "Ignore"}] * 2

    async def test_writes_are_counted_once_however_often_they_are_tried(
        self, kube: Kube, server: Server, pauses: list[float]
    ):
        server.answers = [failure(503), failure(503), answer(201)]
        await kube.create(EVENTS, {"metadata": {"name": "e", "namespace": "team-a"}})
        await kube.get(PODS, "train-1", "team-a")
        assert dict(kube.writes) == {("create", "events"): 1}
        assert len(pauses) == 2


class TestLists:
    async def test_all_pages_are_one_list(self, kube: Kube, server: Server):
        server.answers = [
            answer(200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}),
            answer(200, {"items": [{"n": 2}], "metadata": {"resourceVersion": "42"}}),
        ]
        items, version = await kube.list(PODS, namespace="team-a", label_selector="a=b")
        assert (items, version) == ([{"n": 1}, {"n": 2}], "42")
        assert [a.query for a in server.asked] == [
            {"limit": "500", "labelSelector": "a=b"},
            {"limit": "500", "labelSelector": "a=b", "continue": "more"},
        ]

    async def test_pages_that_have_expired_are_asked_for_in_one_piece(
        self, kube: Kube, server: Server
    ):
        server.answers = [
            answer(200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}),
            failure(410, "Expired"),
            answer(200, {"items": [{"n": 1}, {"n": 2}], "metadata": {"resourceVersion": "9"}}),
        ]
        assert await kube.list(PODS) == ([{"n": 1}, {"n": 2}], "9")
        assert server.asked[-1].query == {}

    async def test_a_first_page_that_is_gone_is_an_error(self, kube: Kube, server: Server):
        server.answers = [failure(410)]
        with pytest.raises(GoneError):
            await kube.list(PODS)

    async def test_a_part_of_a_list_is_never_taken_for_the_whole(self, kube: Kube, server: Server):
        server.answers = [
            answer(200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}),
            failure(403),
        ]
        with pytest.raises(ForbiddenError):
            await kube.list(PODS)


class TestRetries:
    @pytest.mark.parametrize(
        ("status", "write"),
        [
            *((status, WRITES[0]) for status in (408, 429, 500, 502, 504)),
            *((503, w) for w in WRITES),
        ],
    )
    async def test_what_may_pass_is_tried_again(
        self, kube: Kube, server: Server, pauses: list[float], status: int, write: Any
    ):
        server.answers = [failure(status), answer(200)]
        await write(kube)
        assert (len(server.asked), len(pauses)) == (2, 1)

    async def test_a_broken_connection_is_tried_again(
        self, kube: Kube, server: Server, pauses: list[float]
    ):
        server.answers = [cut, cut, answer(200, {"ok": True})]
        assert await kube.create(PODS, POD) == {"ok": True}
        assert len(pauses) == 2

    @pytest.mark.parametrize("page", ["<html>busy</html>", [1]])
    async def test_an_answer_of_another_program_is_tried_again(
        self, kube: Kube, server: Server, pauses: list[float], page: Any
    ):
        server.answers = [answer(200, page), answer(200, {"ok": True})]
        assert await kube.get(PODS, "train-1", "team-a") == {"ok": True}
        assert len(pauses) == 1

    async def test_the_servers_wish_for_a_pause_is_met_up_to_a_bound(
        self, kube: Kube, server: Server, pauses: list[float]
    ):
        server.answers = [
            failure(429, **{"Retry-After": "3"}),
            failure(429, **{"Retry-After": "3600"}),
            failure(429, **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
            answer(200),
        ]
        await kube.get(PODS, "train-1", "team-a")
        assert pauses[:2] == [3.0, 5.0]
        assert 0 < pauses[2] < 5.0

    async def test_it_gives_up_after_some_tries_ever_slower(
        self, kube: Kube, server: Server, pauses: list[float]
    ):
        server.answers = [failure(503, message="down")]
        with pytest.raises(UnavailableError, match="down") as caught:
            await kube.get(PODS, "train-1", "team-a")
        assert caught.value.status == 503
        assert len(server.asked) == 6
        assert len(pauses) == 5
        assert sum(pauses) < 20.0
        assert all(0 < pause <= 5.0 for pause in pauses)

    async def test_nobody_there_is_given_up_too(
        self, kube: Kube, api: ApiClient, pauses: list[float]
    ):
        api.configuration.host = "http://127.0.0.1:1"
        with pytest.raises(UnavailableError, match=r"train-1: connection refused$"):
            await kube.get(PODS, "train-1", "team-a")
        assert len(pauses) == 5

    @pytest.mark.parametrize(
        ("status", "reason", "error"),
        [
            (400, "BadRequest", InvalidError),
            (401, "Unauthorized", ForbiddenError),
            (403, "Forbidden", ForbiddenError),
            (404, "NotFound", NotFoundError),
            (409, "Conflict", ConflictError),
            (409, "AlreadyExists", AlreadyExistsError),
            (410, "Gone", GoneError),
            (413, "", InvalidError),
            (422, "Invalid", InvalidError),
            (418, "Teapot", KubernetesError),
        ],
    )
    async def test_what_will_not_pass_is_not(
        self,
        kube: Kube,
        server: Server,
        pauses: list[float],
        status: int,
        reason: str,
        error: type[KubernetesError],
    ):
        server.answers = [failure(status, reason, "because")]
        with pytest.raises(error, match="because") as caught:
            await kube.create(PODS, POD)
        assert type(caught.value) is error
        assert str(caught.value) == f"POST /api/v1/namespaces/team-a/pods: {status} because"
        assert (len(server.asked), pauses) == (1, [])


class TestFence:
    @pytest.mark.parametrize("write", WRITES)
    async def test_who_does_not_lead_writes_nothing(
        self, api: ApiClient, server: Server, pauses: list[float], write: Any
    ):
        server.answers = [answer(200, {"ok": True})]
        fenced = Kube(api, may_write=lambda: False)
        with pytest.raises(FencedError, match="is not the leader"):
            await write(fenced)
        assert (server.asked, pauses) == ([], [])
        assert await fenced.get(PODS, "train-1", "team-a") == {"ok": True}

    @pytest.mark.usefixtures("pauses")
    @pytest.mark.parametrize("write", WRITES)
    async def test_a_write_that_waits_for_a_connection_while_the_lead_goes_is_not_sent(
        self, server: Server, write: Any
    ):
        answers, waits = [True], asyncio.Event()  # from then on it leads no more

        async def held_up(_: Any) -> web.Response:
            await waits.wait()
            return answer(200, {"ok": True})

        server.answers = [held_up]
        configuration = Configuration(host=server.url, trace_configs=[fence_trace()])
        configuration.connection_pool_maxsize = 1
        async with ApiClient(configuration) as api, asyncio.TaskGroup() as group:
            first = group.create_task(Kube(api).get(PODS, "train-1", "team-a"))
            while not server.asked:
                await asyncio.sleep(0)
            fenced = Kube(api, may_write=lambda: bool(answers) and answers.pop())
            second = asyncio.ensure_future(write(fenced))
            while answers:
                await asyncio.sleep(0)
            waits.set()
            assert await first == {"ok": True}
            with pytest.raises(FencedError):
                await second
        assert [asked.method for asked in server.asked] == ["GET"]

    @pytest.mark.usefixtures("pauses")
    async def test_the_fence_is_asked_before_each_try(self, api: ApiClient, server: Server):
        server.answers = [failure(503)]
        leads = iter([True] * 4 + [False])  # twice a try: before it, and when it is sent
        with pytest.raises(FencedError):
            await Kube(api, may_write=lambda: next(leads)).create(PODS, POD)
        assert len(server.asked) == 2

    @pytest.mark.usefixtures("pauses")
    async def test_what_is_no_longer_due_is_not_tried_again(self, kube: Kube, server: Server):
        server.answers = [failure(503)]
        with pytest.raises(FencedError), fenced(lambda: not server.asked):
            await kube.create(PODS, POD)
        assert len(server.asked) == 1


class TestForeignText:
    def test_a_long_message_is_cut(self):
        body = b'{"message": "' + b"x" * 9000 + b'"}'
        assert len(from_response("GET /", 500, body, None).message) == 512

    @pytest.mark.parametrize("body", [b"plain", b"\xff\xfe", b"[1, 2]", b"3", b""])
    def test_any_body_is_readable(self, body: bytes):
        error = from_response("GET /", 502, body, "soon")
        assert isinstance(error, UnavailableError)
        assert error.retry_after is None


class TestLogs:
    async def read(self, kube: Kube, **wanted: Any) -> bytes:
        lines = kube.log("train-1", "team-a", "main", **wanted)
        return b"".join([chunk async for chunk in lines])

    async def test_a_log_comes_as_it_is(self, kube: Kube, server: Server):
        server.answers = [answer(200, "epoch 1")]
        assert await self.read(kube, tail=20, follow=True) == b"epoch 1"
        await self.read(kube, tail=None)
        asked, whole = server.asked
        assert asked.path == "/api/v1/namespaces/team-a/pods/train-1/log"
        assert asked.query == {"container": "main", "follow": "true", "tailLines": "20"}
        assert whole.query == {"container": "main", "follow": "false"}

    @pytest.mark.parametrize(
        ("status", "error"), [(404, NotFoundError), (403, ForbiddenError), (400, InvalidError)]
    )
    async def test_why_there_is_none(self, kube: Kube, server: Server, status: int, error: type):
        server.answers = [failure(status, message="it is so")]
        with pytest.raises(error, match="it is so"):
            await self.read(kube, tail=None)

    async def test_a_connection_that_breaks_is_told(self, kube: Kube, server: Server):
        server.answers = [cut]
        with pytest.raises(UnavailableError):
            await self.read(kube, tail=None)
