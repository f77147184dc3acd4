"""What the page's server tells to viewers with tokens, by their rights."""

from __future__ import annotations

import pytest

from console.pages import Page, get, stream
from console.reviews import Reviews
from console.sample_objects import (
    GROUP_PATH,
    allocate,
    make_ended,
    make_job,
    make_partition,
    make_server,
    make_workload,
    pod_with_log,
)
from partita.console.access import ByToken
from partita.times import Times
from support.api import Api

RIGHTS = {"ada": {"gpupartitions", "sharedgpujobs/team-a"}, "nobody": set[str]()}


@pytest.fixture(autouse=True)
async def teams(clean: None, api: Api) -> None:
    for name in ("team-a", "team-hidden"):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})


async def test_other_namespaces_names_never_leave_the_server(http, serve, api: Api) -> None:
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


async def test_what_other_namespaces_have_is_neither_listed_nor_opened_nor_named(
    http, serve, api: Api
) -> None:
    await make_partition(api, "shared")
    await make_server(api, "shared-0", "shared")
    for name in ("team-a", "team-hidden"):
        await make_ended(api, f"done-{name}", name)
        pod, claim = await make_workload(api, f"serve-{name}", name, "shared")
        await allocate(api, "shared-0", pod, claim, memory="4Gi", used="1Gi")
    refusals = (("", 401), ("expired", 401), ("nobody", 403))
    async with serve(ByToken(Reviews(RIGHTS))) as url:  # type: ignore[arg-type]
        asked = {"partition": "shared", "outcome": "finished"}
        status, found = await get(http, f"{url}/ended", "ada", **asked)
        assert status == 200
        assert (found["total"], [row["name"] for row in found["rows"]]) == (1, ["done-team-a"])
        for token, refused in refusals:
            assert (await get(http, f"{url}/ended", token, **asked))[0] == refused
            assert (await get(http, f"{url}/events", token))[0] == refused
        async with http.get(url, headers={"Host": "console.example"}) as page:
            assert page.status == 200  # the page itself tells nothing
        for kind, name in (("job", "done"), ("workload", "serve")):
            own = {"kind": kind, "namespace": "team-a", "name": f"{name}-team-a"}
            other = {"kind": kind, "namespace": "team-hidden", "name": f"{name}-team-hidden"}
            missing = await get(http, f"{url}/detail", "ada", **other | {"name": "nosuch"})
            assert missing[0] == 404
            paths = [("detail", "GET"), ("policies", "GET"), ("log", "GET"), ("change", "POST")]
            for path, method in paths:
                assert await get(http, f"{url}/{path}", "ada", method, **other) == missing
                for token, refused in refusals:
                    assert (await get(http, f"{url}/{path}", token, method, **own))[0] == refused
            status, seen = await get(http, f"{url}/detail", "ada", **own)
            hidden = ["a job or workload of another namespace"] if kind == "workload" else None
            assert (status, seen["beside"]) == (200, hidden)
            assert seen["eventsProblem"] == "You may not list Events in namespace team-a."


async def test_a_change_comes_from_the_page_of_one_who_signed_in(http, serve, api: Api) -> None:
    job = await make_job(api, "train", "team-a", "shared")
    asked = {"namespace": "team-a", "name": "train", "change": "suspend"}
    async with serve() as url:
        assert (await get(http, f"{url}/change", "ada", "POST", **asked))[0] == 403
    async with serve(ByToken(Reviews(RIGHTS))) as url:  # type: ignore[arg-type]
        wrong = asked | {"change": "delete"}
        assert (await get(http, f"{url}/change", "ada", "POST", **wrong))[0] == 400
        for kind, site, status in (("json", "cross-site", 403), ("text", "same-origin", 415)):
            headers = {"Content-Type": f"application/{kind}", "Sec-Fetch-Site": site}
            headers["Authorization"] = "Bearer ada"  # a proxy adds it
            async with http.post(f"{url}/change", params=asked, headers=headers) as answer:
                assert answer.status == status
    path = f"{GROUP_PATH}/namespaces/team-a/sharedgpujobs/train"
    assert (await api.get(path)).ok().body == job


@pytest.mark.smoke
async def test_each_policy_is_asked_for_jobs_and_workloads(
    http, serve, api: Api, namespace
) -> None:
    await make_partition(api, "shared", policy={"name": "fifo"}, fairness={"halfLife": "24h"})
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


async def test_a_right_that_is_taken_away_ends_the_streams_of_events_and_of_a_log(
    http, serve, api: Api
) -> None:
    times = Times(stream_silence=0.05, viewer_rights=0.0)
    reviews = Reviews(RIGHTS)
    ran = {"attempts": [{"number": 1, "pod": "train-1", "memory": "4Gi"}]}
    await make_job(api, "train", "team-a", "shared", status=ran)
    about = {"namespace": "team-a", "name": "train"}
    async with (
        serve(ByToken(reviews, times), times=times) as url,  # type: ignore[arg-type]
        pod_with_log(api, "team-a", "train-1", "epoch 1") as log,
    ):
        async with (
            stream(http, url, "ada") as response,
            stream(http, url, "ada", "log", **about) as followed,
        ):
            page, lines = Page(response), Page(followed)
            assert await lines.next_of("log") == {"container": "main", "containers": ["main"]}
            assert await lines.next_of("text") == {"text": "epoch 1\n"}
            log.write("épo")
            assert await lines.next_of("text") == {"text": "épo\n"}
            await page.read()
            del reviews.rights["ada"]
            assert (await lines.next_of("end"))["why"].startswith("this token is missing, expired")
            with pytest.raises(EOFError):
                await page.until(lambda _: False)
        async with stream(http, url, "ada") as response:
            assert response.status == 401
