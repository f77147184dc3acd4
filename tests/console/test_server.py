"""The page's server: what it answers to whom, and what it sends as things change."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from console.reviews import Reviews
from console.sample_objects import (
    GROUP_PATH,
    allocate,
    make_demo,
    make_job,
    make_partition,
    make_server,
    make_workload,
    put_status,
)
from partita.console import feed
from partita.console import web_server as server
from partita.console.access import ByToken
from partita.informer import informer
from partita.kube.errors import ForbiddenError, UnavailableError
from support.api import Api

pytestmark = pytest.mark.usefixtures("clean")

SECONDS = 60
Json = dict[str, Any]


@pytest.fixture
async def http(connections: None) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


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
        async with asyncio.timeout(SECONDS):
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

    async def until(self, holds: Any) -> None:
        while not holds(self.state):
            await self.read()


def stream(http: aiohttp.ClientSession, url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return http.get(f"{url}/events", headers=headers)


@pytest.mark.parametrize("path", ["/", "/console.js", "/console.css", "/icon.svg", "/nope"])
async def test_every_answer_forbids_what_the_page_does_not_need(http, serve, path: str) -> None:
    async with serve() as url, http.get(url + path) as answer:
        assert answer.status == (404 if path == "/nope" else 200)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
        )
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8090", "127.0.0.1.evil.example", "10.0.0.1", ""]
)
@pytest.mark.parametrize("path", ["/", "/events", "/healthz"])
async def test_a_name_that_is_not_this_machines_is_refused(
    http, serve, host: str, path: str
) -> None:
    async with serve() as url, http.get(url + path, headers={"Host": host}) as answer:
        assert answer.status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8090", "[::1]:8090", "[::1]"]
)
async def test_this_machine_goes_by_its_usual_names(http, serve, host: str) -> None:
    async with serve() as url, http.get(url, headers={"Host": host}) as answer:
        assert answer.status == 200


async def test_what_is_there_comes_at_once_and_then_what_changes(
    http, serve, api: Api, namespace
) -> None:
    job = await make_job(api, "train", namespace, "shared")
    await make_partition(api, "shared")
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        name, first = await page.read()
        assert (name, first["reset"]) == ("state", True)
        assert page.state["partition/shared"]["waiting"] == 1

        await make_server(api, "shared-0", "shared", (job, "4Gi", "1000Mi"))
        await page.until(lambda seen: "gpu/shared-0" in seen)
        assert page.state["gpu/shared-0"]["slices"][0]["name"] == "train"

        (await api.delete(f"{GROUP_PATH}/gpuservers/shared-0")).ok()
        await page.until(lambda seen: "gpu/shared-0" not in seen)


async def test_only_the_fields_that_changed_are_sent(http, serve, api: Api, namespace) -> None:
    await make_partition(api, "shared")
    path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/train"
    await make_job(
        api, "train", namespace, "shared", status={"phase": "Queued", "queuePosition": 7}
    )
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        await page.read()
        await put_status(api, path, {"queuePosition": 6})
        name = ""
        while name != "state":
            name, patch = await page.read()
        assert list(patch["set"].values()) == [{"position": 6}]


async def test_the_last_hours_come_with_the_page(http, serve, api: Api, namespace) -> None:
    await make_demo(api, "shared", dict.fromkeys(("vision", "language", "speech"), namespace))
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        while "shared" not in page.history:
            await page.read()
        assert len(page.history["shared"]) > 1000
        assert max(point[1] for point in page.history["shared"]) > 60 << 30


async def test_a_broken_watch_is_reported_and_resumed(http, serve, api: Api, monkeypatch) -> None:
    real, broken = informer.watch, True
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.05)

    @asynccontextmanager
    async def flaky(*args: Any) -> AsyncIterator[Any]:
        if broken:
            raise UnavailableError("watch", 0, "down")
        async with real(*args) as events:
            yield events

    monkeypatch.setattr(informer, "watch", flaky)
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        await page.until(lambda seen: seen and seen["feed"]["staleSince"])
        await make_partition(api, "late")
        broken = False
        await page.until(lambda seen: not seen["feed"]["staleSince"] and "partition/late" in seen)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/partita-system/leases"


async def test_a_page_reports_whether_an_operator_is_running(
    http, serve, api: Api, monkeypatch
) -> None:
    monkeypatch.setattr(feed, "CHECK_OPERATOR", 0.05)
    await api.post("/api/v1/namespaces", {"metadata": {"name": "partita-system"}})
    await api.delete(f"{LEASES}/partita-operator")
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        await page.read()
        assert page.state["feed"]["operatorProblem"].startswith("No operator is running: ")
        spec = {
            "holderIdentity": "pod-1",
            "leaseDurationSeconds": 60,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        (await api.post(LEASES, {"metadata": {"name": "partita-operator"}, "spec": spec})).ok()
        await page.until(lambda seen: seen["feed"]["operatorProblem"] == "")
        (await api.delete(f"{LEASES}/partita-operator")).ok()
        await page.until(lambda seen: seen["feed"]["operatorProblem"] != "")


async def get(http: aiohttp.ClientSession, url: str, token: str = "", **query: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with http.get(url, params=query, headers=headers) as answer:
        return answer.status, await (answer.json() if answer.ok else answer.text())


async def make_ended(api: Api, name: str, namespace: str, phase: str = "Succeeded") -> Json:
    done = {"phase": phase, "reason": phase, "completionTime": "2026-01-01T12:00:00Z"}
    return await make_job(api, name, namespace, "shared", status=done)


async def test_ended_jobs_are_listed_on_request(http, serve, api: Api, namespace) -> None:
    await make_partition(api, "shared")
    await make_ended(api, "good", namespace)
    await make_ended(api, "bad", namespace, "Failed")
    async with serve() as url:
        for outcome, name in (("finished", "good"), ("failed", "bad")):
            status, found = await get(http, f"{url}/ended", partition="shared", outcome=outcome)
            assert status == 200
            assert [row["name"] for row in found["rows"]] == [name]
        for wrong in ({"outcome": "x"}, {"outcome": "failed", "offset": "-1"}):
            assert (await get(http, f"{url}/ended", partition="shared", **wrong))[0] == 400


async def test_the_page_of_a_job_has_its_events(http, serve, api: Api, namespace) -> None:
    job = await make_job(api, "train", namespace, "shared", status={"message": "m" * 4096})
    uid = job["metadata"]["uid"]
    for n, about in enumerate((uid, "another", uid)):
        event = {
            "metadata": {"name": f"e{n}", "namespace": namespace},
            "involvedObject": {
                "kind": "SharedGPUJob", "name": "train", "namespace": namespace, "uid": about,
            },
            "reason": "Scheduled", "message": f"event {n}", "type": "Normal",
            "source": {"component": "partita"},
            "firstTimestamp": "2026-01-01T12:00:00Z", "lastTimestamp": "2026-01-01T12:00:00Z",
            "count": 1,
        }  # fmt: skip
        (await api.post(f"/api/v1/namespaces/{namespace}/events", event)).ok()
    async with serve() as url:
        status, seen = await get(http, f"{url}/detail", namespace=namespace, name="train")
        assert status == 200
        assert seen["message"] == "m" * 4096
        assert [(event["reason"], event["message"]) for event in seen["events"]] == [
            ("Scheduled", "event 2"),
            ("Scheduled", "event 0"),
        ]
        assert seen["eventsProblem"] == ""
        status, _ = await get(http, f"{url}/detail", namespace=namespace, name="nosuch")
        assert status == 404


async def test_a_console_that_stops_ends_its_streams_in_order(http, serve) -> None:
    async with serve() as url:
        response = await stream(http, url)
        page = Page(response)
        await page.read()
    with pytest.raises(EOFError):  # no broken connection
        await page.until(lambda _: False)
    response.close()


# Viewers with tokens.

RIGHTS = {
    "ada": {"gpupartitions", "sharedgpujobs/team-a"},
    "root": {"gpupartitions", "sharedgpujobs"},
    "nobody": set[str](),
}


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("expired", 401), ("nobody", 403), ("ada", 200)]
)
async def test_a_stream_needs_a_valid_token_with_rights(
    http, serve, token: str, status: int
) -> None:
    access = ByToken(Reviews(RIGHTS))  # type: ignore[arg-type]
    async with serve(access) as url:
        async with stream(http, url, token) as response:
            assert response.status == status
        async with http.get(url, headers={"Host": "console.example"}) as page:
            assert page.status == 200  # the page itself tells nothing


async def test_other_namespaces_names_never_leave_the_server(http, serve, api: Api) -> None:
    for name in ("team-a", "team-hidden"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await make_partition(api, "shared")
    own = await make_job(api, "open", "team-a", "shared")
    other = await make_job(api, "veiled", "team-hidden", "shared")
    await make_job(
        api, "veiled-next", "team-hidden", "shared", status={"phase": "Queued", "message": "veiled"}
    )
    await make_server(api, "shared-0", "shared", (own, "4Gi", "1000Mi"), (other, "8Gi", "1000Mi"))
    async with serve(ByToken(Reviews(RIGHTS))) as url, stream(http, url, "ada") as response:  # type: ignore[arg-type]
        page = Page(response)
        await page.read()
        # Of what comes later, too.
        await make_job(api, "veiled-late", "team-hidden", "shared", memory="9Gi")
        await make_job(api, "open-late", "team-a", "shared")
        await page.until(lambda seen: any(e.get("name") == "open-late" for e in seen.values()))
        slices = page.state["gpu/shared-0"]["slices"]
        assert [piece.get("name") for piece in slices] == ["open", None]
        assert b"open" in page.wire
        assert b"veiled" not in page.wire
        assert b"team-hidden" not in page.wire


async def test_jobs_of_other_namespaces_are_neither_listed_nor_opened(
    http, serve, api: Api
) -> None:
    for name in ("team-a", "team-hidden"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        await make_ended(api, f"done-{name}", name)
    await make_partition(api, "shared")
    async with serve(ByToken(Reviews(RIGHTS))) as url:  # type: ignore[arg-type]
        asked = {"partition": "shared", "outcome": "finished"}
        status, found = await get(http, f"{url}/ended", "ada", **asked)
        assert status == 200
        assert (found["total"], [row["name"] for row in found["rows"]]) == (1, ["done-team-a"])
        own = {"namespace": "team-a", "name": "done-team-a"}
        other = {"namespace": "team-hidden", "name": "done-team-hidden"}
        status, seen = await get(http, f"{url}/detail", "ada", **own)
        assert (status, seen["phase"]) == (200, "Succeeded")
        assert seen["eventsProblem"] == "You may not list Events in namespace team-a."
        missing = await get(http, f"{url}/detail", "ada", **other | {"name": "nosuch"})
        assert await get(http, f"{url}/detail", "ada", **other) == missing
        assert missing[0] == 404
        for token, refused in (("", 401), ("expired", 401), ("nobody", 403)):
            assert (await get(http, f"{url}/detail", token, **own))[0] == refused
            assert (await get(http, f"{url}/ended", token, **asked))[0] == refused


async def test_workloads_of_other_namespaces_are_not_opened_or_named(http, serve, api: Api) -> None:
    for name in ("team-a", "team-hidden"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await make_partition(api, "shared")
    await make_server(api, "shared-0", "shared")
    own = await make_workload(api, "open-1", "team-a", "shared")
    other = await make_workload(api, "veiled-1", "team-hidden", "shared")
    for pod, claim in (own, other):
        await allocate(api, "shared-0", pod, claim, memory="4Gi", used="1Gi")
    async with serve(ByToken(Reviews(RIGHTS))) as url:  # type: ignore[arg-type]
        asked = {"kind": "workload", "namespace": "team-a", "name": "open-1"}
        status, seen = await get(http, f"{url}/detail", "ada", **asked)
        assert (status, seen["beside"]) == (200, ["a job or workload of another namespace"])
        hidden = asked | {"namespace": "team-hidden", "name": "veiled-1"}
        missing = await get(http, f"{url}/detail", "ada", **hidden | {"name": "nosuch"})
        for path in ("detail", "policies"):
            assert await get(http, f"{url}/{path}", "ada", **hidden) == missing
            assert (await get(http, f"{url}/{path}", "nobody", **asked))[0] == 403
        assert missing[0] == 404


async def test_each_policy_is_asked_for_jobs_and_workloads(
    http, serve, api: Api, namespace
) -> None:
    await make_partition(api, "shared", policy={"name": "fifo"})
    await make_job(api, "train", namespace, "shared")
    await make_workload(api, "serve-1", namespace, "shared")
    async with serve() as url:
        for kind, name in (("job", "train"), ("workload", "serve-1")):
            asked = {"kind": kind, "namespace": namespace, "name": name}
            status, found = await get(http, f"{url}/policies", **asked)
            assert (status, found["waits"]) == (200, True)
            first = found["answers"][0]
            assert (first["policy"], first["role"], first["decision"]) == ("fifo", "active", "wait")
            assert (
                first["message"]
                == "none of the 2 GPUs of shared is ready: see `kubectl get gpuservers` and `kubectl describe gpart shared`"
            )


async def test_without_rights_on_claims_and_pods_the_page_says_what_is_missing(
    http, serve, api: Api, monkeypatch
) -> None:
    await make_partition(api, "shared")
    listed = informer.Informer.list

    async def refused(self: informer.Informer) -> None:
        if self._kind.plural in {"pods", "resourceclaims"}:
            raise ForbiddenError("GET", 403, "forbidden")
        await listed(self)

    monkeypatch.setattr(informer.Informer, "list", refused)
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        await page.read()
        assert sorted(page.state["feed"]["leftOut"]) == ["pods", "resourceclaims"]
        assert "partition/shared" in page.state


async def test_a_right_that_is_taken_away_ends_the_stream(
    http, serve, api: Api, monkeypatch
) -> None:
    monkeypatch.setattr(server, "SILENCE", 0.05)
    monkeypatch.setattr("partita.console.access.REMEMBERED_SECONDS", 0.0)
    reviews = Reviews(RIGHTS)
    async with serve(ByToken(reviews)) as url:  # type: ignore[arg-type]
        async with stream(http, url, "ada") as response:
            page = Page(response)
            await page.read()
            del reviews.rights["ada"]
            with pytest.raises(EOFError):
                await page.until(lambda _: False)
        async with stream(http, url, "ada") as response:
            assert response.status == 401


# Viewers who do not read.

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
    http, serve, api: Api, monkeypatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.2)
    monkeypatch.setattr(feed, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(server, "MOST_VIEWERS", 1)
    await chatty(api, "a", create=True)
    async with serve() as url:
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


async def test_what_a_viewer_does_not_read_is_not_kept(http, serve, api: Api, monkeypatch) -> None:
    monkeypatch.setattr(feed, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(server, "PATIENCE", 600.0)
    await chatty(api, "a", create=True)
    async with serve() as url:
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
            await say("lmnopqrstuvw")
            after = to_be_sent()
            tracemalloc.stop()
        silent.close()
    assert after - before < 4 * MEBI  # of nearly 12 MiB that were sent
