"""The page's server: what it answers, and what it sends as things change."""

from __future__ import annotations

import pytest

from console.pages import Page, get, stream
from console.sample_objects import (
    GROUP_PATH,
    LEASES,
    make_demo,
    make_ended,
    make_job,
    make_lease,
    make_partition,
    make_server,
    put_status,
)
from partita.times import Times
from support.api import Api

pytestmark = pytest.mark.usefixtures("clean")


async def test_every_answer_forbids_what_the_page_does_not_need(http, serve) -> None:
    async with serve() as url:
        for path in ("/", "/console.js", "/console.css", "/icon.svg", "/nope"):
            async with http.get(url + path) as answer:
                assert answer.status == (404 if path == "/nope" else 200), path
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith(
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
                )
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert "Set-Cookie" not in answer.headers


NAMES = {
    **dict.fromkeys(("localhost", "LOCALHOST:1", "127.0.0.1:8090", "[::1]:8090", "[::1]"), 200),
    **dict.fromkeys(("evil.example", "evil.example:8090", "127.0.0.1.evil.example"), 421),
    **dict.fromkeys(("10.0.0.1", ""), 421),
}


@pytest.mark.parametrize("path", ["/", "/healthz", "/events"])
async def test_only_names_of_this_machine_are_served(http, serve, path: str) -> None:
    async with serve() as url:
        for host, status in NAMES.items():
            async with http.get(url + path, headers={"Host": host}) as answer:
                assert answer.status == status, host


@pytest.mark.smoke
async def test_what_is_there_comes_at_once_and_then_what_changes(
    http, serve, api: Api, namespace
) -> None:
    path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/train"
    waits = {"phase": "Queued", "queuePosition": 7}
    job = await make_job(api, "train", namespace, "shared", status=waits)
    await make_partition(api, "shared")
    await api.post("/api/v1/namespaces", {"metadata": {"name": "partita-system"}})
    await api.delete(f"{LEASES}/partita-operator")
    times = Times(check_operator=0.05)
    async with serve(times=times) as url, stream(http, url) as response:
        page = Page(response)
        name, first = await page.read()
        assert (name, first["reset"]) == ("state", True)
        assert page.state["partition/shared"]["waiting"] == 1
        assert (await page.read())[0] == "history"

        await put_status(api, path, {"queuePosition": 6})
        changed = (await page.next_of("state"))["set"]
        assert list(changed.values()) == [{"position": 6}]  # what has changed alone

        await make_server(api, "shared-0", "shared", (job, "4Gi", "1000Mi"))
        # with its ledger, which is written after the GPU
        await page.until(lambda seen: seen.get("gpu/shared-0", {}).get("slices"))
        assert page.state["gpu/shared-0"]["slices"][0]["name"] == "train"

        (await api.delete(f"{GROUP_PATH}/gpuservers/shared-0")).ok()
        await page.until(lambda seen: "gpu/shared-0" not in seen)
        assert page.state["feed"]["operatorProblem"].startswith("No operator is running: ")
        await make_lease(api)
        await page.until(lambda seen: seen["feed"]["operatorProblem"] == "")
        (await api.delete(f"{LEASES}/partita-operator")).ok()
        await page.until(lambda seen: seen["feed"]["operatorProblem"] != "")


@pytest.mark.smoke
async def test_the_last_hours_come_with_the_page(http, serve, api: Api, namespace) -> None:
    await make_demo(api, "shared", dict.fromkeys(("vision", "language", "speech"), namespace))
    async with serve() as url, stream(http, url) as response:
        page = Page(response)
        while "shared" not in page.history:
            await page.read()
        assert len(page.history["shared"]) > 1000
        assert max(point[1] for point in page.history["shared"]) > 60 << 30


async def test_a_broken_watch_is_reported_and_resumed(http, serve, api: Api, watches_work) -> None:
    async with serve(times=Times(longest_watch_pause=0.05)) as url, stream(http, url) as response:
        page = Page(response)
        await page.until(lambda seen: seen and seen["feed"]["staleSince"])
        await make_partition(api, "late")
        watches_work.set()
        await page.until(lambda seen: not seen["feed"]["staleSince"] and "partition/late" in seen)


async def test_ended_jobs_are_listed_on_request(http, serve, api: Api, namespace) -> None:
    await make_partition(api, "shared")
    await make_ended(api, "good", namespace)
    await make_ended(api, "bad", namespace, "Failed")
    async with serve() as url:
        for outcome, name in (("finished", "good"), ("failed", "bad")):
            status, found = await get(http, f"{url}/ended", partition="shared", outcome=outcome)
            assert status == 200
            assert [row["name"] for row in found["rows"]] == [name]
        for wrong in ({"outcome": "x"}, {"offset": "-1"}, {"order": "colour"}):
            asked = {"partition": "shared", "outcome": "failed", **wrong}
            assert (await get(http, f"{url}/ended", **asked))[0] == 400


@pytest.mark.smoke
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
            "firstTimestamp": "2026-01-01T12:00:00Z", "lastTimestamp": "2026-01-01T12:00:00Z",
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
