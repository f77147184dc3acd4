"""The page as people use it: with a mouse, a keyboard, a phone; and with bad words in it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import expect

from console.reviews import Reviews
from console.sample_objects import (
    GROUP_PATH,
    LEASES,
    claim_of,
    make_demo,
    make_job,
    make_lease,
    make_partition,
    make_server,
    put_status,
)
from partita.console.access import ByToken
from partita.times import Times
from support.api import MERGE, Api

pytestmark = pytest.mark.usefixtures("clean")

TEAMS = ("vision", "language", "speech")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def demo(api: Api) -> None:
    for name in TEAMS:
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await make_demo(api, "shared", {name: name for name in TEAMS})


async def test_it_shows_gpus_slices_queue_policies_the_last_hours_and_a_legend(
    serve, visit, api: Api
) -> None:
    await demo(api)
    async with serve() as url:
        page = await visit(url)
        gpus = page.locator(".gpu")
        await expect(gpus).to_have_count(4)
        first = gpus.first
        await expect(first).to_contain_text("shared-0")
        await expect(first.locator(".badge")).to_have_text("Ready")
        await expect(first.locator(".mps")).to_have_text("MPS ready · 3 clients")
        await expect(first.locator(".slice")).to_have_text(
            ["train-detector", "asr-finetune", "embed-docs"]
        )
        await expect(first.locator(".sum")).to_have_text(
            "34.0 of 37.2 GiB allocated · 29.2 used · 91 % busy"
        )
        await expect(gpus.last.locator(".mps")).to_have_text("MPS faulted · 0 clients")
        widths = await first.locator(".slice").evaluate_all("all => all.map(s => s.offsetWidth)")
        assert widths[0] > widths[1] > widths[2] > 0

        rows = page.locator(".queue tbody tr")
        await expect(rows).to_have_count(6)
        await expect(rows.nth(3)).to_contain_text("GPU held")
        await expect(rows.nth(4)).to_contain_text("Never fits")
        await expect(rows.last).to_contain_text("Suspended")
        await expect(page.locator(".policies li")).to_contain_text(
            ["planner", "same in 93 % of 1,284", "same in 69 %"]
        )
        await expect(page.locator(".trouble")).to_contain_text("shared-3 is Faulted")
        await expect(page.locator(".timeline title")).to_contain_text("5 wait")
        await expect(page.get_by_role("status").first).to_have_text("Live")

        assert await page.locator("path.allocated").get_attribute("d")
        # 85 of 148.8 GiB are allocated, 5 jobs wait, and the first job started 340 minutes ago.
        await expect(page.locator(".axis.memory span")).to_have_text(["0", "50", "100 GiB"])
        await expect(page.locator(".axis.jobs span")).to_have_text(["0", "2", "4", "6 waiting"])
        times = page.locator(".axis.times span")
        assert 5 <= await times.count() <= 6
        boxes = [await label.bounding_box() for label in await times.all()]
        assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(boxes))

        signs = page.locator(".legend li")
        await expect(signs.first).to_have_text("language")
        await expect(page.locator(".legend")).to_contain_text("memory allocated to a job")
        ground = "node => getComputedStyle(node).backgroundColor"
        colour = await page.locator(".slice", has_text="embed-docs").evaluate(ground)
        assert await signs.first.locator("i").evaluate(ground) == colour


async def test_a_change_is_shown_without_a_touch(serve, visit, api: Api, namespace) -> None:
    job = await make_job(api, "train", namespace, "shared")
    await make_partition(api, "shared")
    async with serve() as url:
        page = await visit(url)
        await expect(page.locator(".queue tbody tr")).to_have_count(1)
        await make_server(api, "shared-0", "shared", (job, "10Gi", "1024Mi"))
        await expect(page.locator(".slice")).to_have_text(["train"])
        path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/train"
        await put_status(api, path, {"phase": "Running"})
        await expect(page.locator(".queue")).to_contain_text("Nothing is waiting.")
        usage = {"usage": {"jobs": {claim_of(job): {"memory": "5Gi"}}}}
        await put_status(api, f"{GROUP_PATH}/gpuservers/shared-0", usage)
        await expect(page.locator(".slice i")).to_have_attribute("style", "width: 50%;")


MARKUP = "<img src=x onerror=document.title='broken'><b>bold</b>"


async def test_markup_in_names_and_messages_is_shown_as_it_was_written(
    serve, visit, api: Api, namespace
) -> None:
    failed = {
        "conditions": [
            {"type": "PolicyHealthy", "status": "False", "reason": "X", "message": MARKUP},
            {"type": "Degraded", "status": "True", "reason": "X", "message": MARKUP},
        ]
    }
    await make_partition(api, "shared", status=failed)
    status = {"phase": "Queued", "reason": MARKUP, "message": MARKUP}
    job = await make_job(api, "train", namespace, "shared", status=status)
    await make_server(api, "shared-0", "shared", (job, "10Gi", "1024Mi"))
    # No API server takes such a namespace; a ledger's field has no such rule.
    place = {"namespace": MARKUP, "job": MARKUP}
    ledger = {"status": {"node": MARKUP, "allocations": {claim_of(job): place}}}
    (await api.patch(f"{GROUP_PATH}/gpuservers/shared-0/status", ledger, MERGE)).ok()
    async with serve() as url:
        page = await visit(url)
        await expect(page.locator(".slice .label")).to_have_text(MARKUP)
        await page.locator(".slice").hover()
        await expect(page.locator("#detail div").first).to_have_text(f"{MARKUP}/{MARKUP}")
        for place_of in (".message", ".trouble", ".policies .refused"):
            await expect(page.locator(place_of).first).to_have_text(MARKUP)
        await expect(page.locator(".where").first).to_contain_text(MARKUP)
        assert await page.title() == "Partita"
        assert await page.locator("main img, main b, #detail img").count() == 0


async def test_the_keyboard_reaches_slices_and_filter(serve, visit, api: Api) -> None:
    await demo(api)
    async with serve() as url:
        page = await visit(url)
        await expect(page.locator(".gpu")).to_have_count(4)
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await expect(page.locator(".slice").first).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator(".slice").nth(1)).to_be_focused()
        await expect(page.locator("#detail")).to_contain_text("speech/asr-finetune")
        await page.keyboard.press("Escape")
        await expect(page.locator("#detail")).to_be_hidden()
        await page.keyboard.press("Tab")  # one stop a GPU
        await expect(page.locator(".gpu").nth(1).locator(".slice").first).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.locator("#filter")).to_be_focused()
        await page.keyboard.type("sweep")
        await expect(page.locator(".queue tbody tr")).to_have_count(1)
        await expect(page.locator(".slice[data-match]")).to_have_text(["sweep-07", "sweep-08"])
        await page.keyboard.press("Escape")
        await expect(page.locator(".queue tbody tr")).to_have_count(6)


async def test_focus_stays_where_it_is_when_something_changes(
    serve, visit, api: Api, namespace
) -> None:
    await make_partition(api, "shared")
    one = await make_job(api, "one", namespace, "shared")
    two = await make_job(api, "two", namespace, "shared")
    await make_server(api, "shared-0", "shared", (one, "4Gi", "100Mi"), (two, "4Gi", "100Mi"))
    async with serve() as url:
        page = await visit(url)
        await page.locator(".slice").nth(1).focus()
        gone = {"allocations": {claim_of(one): None}}
        await put_status(api, f"{GROUP_PATH}/gpuservers/shared-0", gone)
        await expect(page.locator(".slice")).to_have_text(["two"])
        await expect(page.locator(".slice")).to_be_focused()


@pytest.mark.parametrize("width", [320, 390, 768])
async def test_nothing_is_wider_than_a_small_screen(serve, visit, api: Api, width: int) -> None:
    await demo(api)
    async with serve() as url:
        page = await visit(url, **PHONE | {"viewport": {"width": width, "height": 700}})
        await expect(page.locator(".gpu")).to_have_count(4)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await page.locator(".slice").first.tap()
        await expect(page.locator("#detail")).to_contain_text("vision/train-detector")


RIGHTS = {"ada": {"gpupartitions", "sharedgpujobs/vision"}}


async def test_one_signs_in_with_a_token_and_sees_only_his_namespaces_names(
    serve, visit, api: Api
) -> None:
    await demo(api)
    access: Any = ByToken(Reviews(RIGHTS))  # type: ignore[arg-type]
    async with serve(access) as url:
        page = await visit(url, quiet=False)  # a refusal is an error to the browser
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.get_by_label("Token").fill("expired")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#refused")).to_contain_text("expired, or not for this cluster")
        await page.get_by_label("Token").fill("ada")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".gpu")).to_have_count(4)
        await expect(page.locator(".gpu").first.locator(".label")).to_have_text(
            ["train-detector", "another namespace", "another namespace"]
        )
        await expect(page.locator(".queue tbody tr")).to_have_count(6)
        hidden = page.locator(".queue tr[data-hidden] .job")
        await expect(hidden).to_have_text(["another namespace"] * 4)
        content = await page.content()
        assert "vision" in content
        assert "speech" not in content
        assert "asr-finetune" not in content
        assert await page.evaluate(
            "[localStorage.length, sessionStorage.length, document.cookie]"
        ) == [0, 0, ""]
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator(".gpu")).to_have_count(0)
        assert "train-detector" not in await page.content()


async def test_it_connects_again_when_the_console_comes_back(serve, visit, api: Api) -> None:
    await make_partition(api, "shared")
    async with serve() as url:
        page = await visit(url, quiet=False)
        await expect(page.locator("#live")).to_have_text("Live")
    await expect(page.locator("#live")).to_have_text("Reconnecting")
    await make_partition(api, "late")
    async with serve(port=int(url.rpartition(":")[2])):
        await expect(page.get_by_role("heading", name="late")).to_be_visible()
        await expect(page.locator("#live")).to_have_text("Live")


async def test_each_list_has_its_jobs_and_each_job_its_page(serve, visit, api: Api) -> None:
    await demo(api)
    failed = {
        "phase": "Failed", "reason": "OutOfMemory", "message": "used more than 8.0 GiB: ask for more",
        "completionTime": "2026-01-01T12:00:00Z", "peakMemory": "8Gi",
        "attempts": [
            {"number": 1, "servers": ["shared-0"], "node": "gpu-node-1", "pod": "diverged-1",
             "memory": "8Gi", "peakMemory": "8Gi", "startTime": "2026-01-01T11:00:00Z",
             "endTime": "2026-01-01T12:00:00Z", "outcome": "OutOfMemory", "exitCode": 1,
             "message": "CUDA out of memory"},
        ],
    }  # fmt: skip
    await make_job(api, "diverged", "speech", "shared", memory="8Gi", status=failed)
    async with serve() as url:
        page = await visit(url)
        tabs = page.locator(".tabs button")
        await expect(tabs).to_have_text(["Waiting 6", "Running 8", "Finished 10", "Failed 1"])
        rows = page.locator(".queue tbody tr")
        await tabs.nth(1).click()
        await expect(rows).to_have_count(8)
        await tabs.nth(2).click()
        await expect(rows).to_have_count(10)
        await tabs.nth(3).click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("used more than 8.0 GiB: ask for more")
        await rows.get_by_role("link", name="diverged").click()
        assert page.url == f"{url}/#/jobs/speech/diverged"
        job = page.locator("#job")
        for text in (
            "speech/diverged", "Failed", "Out of memory used more than 8.0 GiB: ask for more",
            "Attempt 1: Out of memory", "ran for 1 h 0 min", "CUDA out of memory",
            "8.0 GiB allocated, at most 8.0 GiB used", "shared-0 on gpu-node-1",
            "partita logs diverged -n speech", "kubectl -n speech logs diverged-1",
        ):  # fmt: skip
            await expect(job).to_contain_text(text)
        await expect(page.locator("#board")).to_be_hidden()
        await page.go_back()
        await expect(page.locator(".gpu")).to_have_count(4)
        await expect(job).to_be_hidden()


async def test_the_page_of_a_job_can_be_opened_directly_and_follows_the_job(
    serve, visit, api: Api, namespace
) -> None:
    await make_partition(api, "shared")
    waits = {"phase": "Queued", "reason": "NeverFits", "message": "ask for less"}
    await make_job(api, "train", namespace, "shared", status=waits)
    async with serve() as url:
        page = await visit(f"{url}/#/jobs/{namespace}/train")
        job = page.locator("#job")
        await expect(job.get_by_role("heading", level=1)).to_have_text(f"{namespace}/train")
        await expect(job).to_contain_text("Never fits ask for less")
        path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/train"
        await put_status(api, path, {"phase": "Running", "reason": "", "message": ""})
        await expect(job.locator(".badge")).to_have_text("Running")


async def test_a_job_that_does_not_exist_is_reported(serve, visit, api: Api) -> None:
    await make_partition(api, "shared")
    async with serve() as url:
        page = await visit(f"{url}/#/jobs/team/nosuch", quiet=False)
        await expect(page.locator("#job .trouble")).to_have_text(
            "This job cannot be shown: it does not exist, or you may not see it."
        )


async def test_a_long_list_of_finished_jobs_is_shown_in_parts(
    serve, visit, api: Api, namespace
) -> None:
    await make_partition(api, "shared")
    done = {"phase": "Succeeded", "completionTime": "2026-01-01T12:00:00Z"}
    for n in range(60):
        await make_job(api, f"done-{n:02}", namespace, "shared", status=done)
    async with serve() as url:
        page = await visit(url)
        await page.get_by_role("button", name="Finished 60").click()
        rows = page.locator(".queue tbody tr")
        await expect(rows).to_have_count(50)
        await expect(page.locator(".queue .count")).to_have_text("50 of 60 shown")
        await page.get_by_role("button", name="Show more (10 left)").click()
        await expect(rows).to_have_count(60)
        await page.locator("#filter").fill("done-07")
        await expect(rows).to_have_count(1)


async def test_a_namespace_is_shown_with_its_share_and_quota(
    serve, visit, api: Api, namespace
) -> None:
    quotas = [{"namespace": namespace, "memory": "8Gi", "jobs": 4}]
    await make_partition(api, "shared", quotas=quotas)
    job = await make_job(api, "train", namespace, "shared")
    await make_server(api, "shared-0", "shared", (job, "6Gi", "1024Mi"))
    async with serve() as url:
        page = await visit(url)
        await expect(page.locator(".namespaces li p")).to_have_text(
            ["has 16 % of the memory", "6.0 of 8.0 GiB of its quota", "1 of 4 jobs"]
        )
        fill = page.locator(".namespaces .meter i")
        await expect(fill).to_have_attribute("style", "width: 16%;")


async def test_a_missing_operator_is_announced_until_one_runs(serve, visit, api: Api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "partita-system"}})
    async with serve(times=Times(check_operator=0.05)) as url:
        page = await visit(url)
        banner = page.locator("#operator")
        await expect(banner).to_contain_text("No operator is running")
        await make_lease(api)
        await expect(banner).to_be_hidden()
        (await api.delete(f"{LEASES}/partita-operator")).ok()
        await expect(banner).to_be_visible()
