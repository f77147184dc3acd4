"""The page as people use it: with a mouse, a keyboard, a phone; and with bad words in it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
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
    pod_with_log,
    put_status,
)
from partita.console.access import ByToken
from partita.times import Times
from support.api import MERGE, Api

if TYPE_CHECKING:
    from playwright.async_api import Page

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
            "34.0 of 37.2 GiB allocated · 29.2 GiB used · 91 % busy"
        )
        await expect(gpus.last.locator(".mps")).to_have_text("MPS faulted · 0 clients")
        await expect(gpus.last.locator(".sum")).to_have_text(
            "0 of 37.2 GiB allocated · 0 MiB used · 0 % busy"
        )
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
    quotas = [{"namespace": namespace, "memory": "12Gi", "jobs": 4}]
    await make_partition(api, "shared", quotas=quotas)
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
        await expect(page.locator(".namespaces li p")).to_have_text(
            ["has 27 % of the memory", "10.0 of 12.0 GiB of its quota", "1 of 4 jobs"]
        )
        fill = page.locator(".namespaces .meter i")
        await expect(fill).to_have_attribute("style", "width: 27%;")


MARKUP = "<img src=x onerror=document.title='broken'><b>bold</b>"


async def test_markup_in_names_and_messages_is_shown_as_it_was_written(
    serve, visit, api: Api, namespace
) -> None:
    said = {"reason": "X", "message": MARKUP, "lastTransitionTime": "2026-01-01T12:00:00Z"}
    states = {"PolicyHealthy": "False", "Degraded": "True"}
    failed = {"conditions": [{"type": one, "status": states[one], **said} for one in states]}
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


async def test_the_keyboard_reaches_slices_and_filter_and_changes_move_no_focus(
    serve, visit, api: Api
) -> None:
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
        detector = (
            await api.get(f"{GROUP_PATH}/namespaces/vision/sharedgpujobs/train-detector")
        ).ok()
        gone = {"allocations": {claim_of(detector.body): None}}
        await put_status(api, f"{GROUP_PATH}/gpuservers/shared-0", gone)
        await expect(page.locator(".slice").first).to_have_text("asr-finetune")
        await expect(page.locator(".slice").first).to_be_focused()
        await page.keyboard.press("Tab")  # one stop a GPU
        await expect(page.locator(".gpu").nth(1).locator(".slice").first).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.locator("#filter")).to_be_focused()
        await page.keyboard.type("sweep")
        await expect(page.locator(".queue tbody tr")).to_have_count(1)
        await expect(page.locator(".slice[data-match]")).to_have_text(["sweep-07", "sweep-08"])
        await page.keyboard.press("Escape")
        await expect(page.locator(".queue tbody tr")).to_have_count(6)


READS = {"gpupartitions", "sharedgpujobs/vision"}
RIGHTS = {"ada": READS | {"patch sharedgpujobs/vision"}, "eve": READS}


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_one_signs_in_with_a_token_and_sees_and_does_what_it_allows(
    serve, visit, api: Api
) -> None:
    await demo(api)
    attempts = [{"number": 1, "pod": "train-1", "memory": "4Gi"}]
    status = {"phase": "Failed", "attempts": attempts}
    await make_job(api, "train", "vision", "shared", status=status)
    access: Any = ByToken(Reviews(RIGHTS))  # type: ignore[arg-type]
    text = "\x1b[32mepoch 1\x1b[0m\n<b>done</b>"
    async with serve(access) as url, pod_with_log(api, "vision", "train-1", text) as log:
        page = await visit(url, quiet=False)  # a refusal is an error to the browser
        page.on("dialog", lambda dialog: dialog.accept())
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await sign_in(page, "expired")
        await expect(page.locator("#refused")).to_contain_text("expired, or not for this cluster")
        await sign_in(page, "ada")
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

        await page.evaluate("location.hash = '#/jobs/vision/train'")
        job, path = page.locator("#job"), f"{GROUP_PATH}/namespaces/vision/sharedgpujobs/train"
        await job.get_by_role("button", name="Show the log").click()
        await expect(job.locator(".log")).to_have_text("epoch 1\n<b>done</b>\n")
        log.write("epoch 2")
        await expect(job.locator(".log")).to_have_text("epoch 1\n<b>done</b>\nepoch 2\n")
        log.close()
        await expect(job).to_contain_text("No more lines come: the container has ended")
        await job.get_by_role("button", name="Retry").click()
        await expect(job.get_by_role("button", name="Retry")).to_be_enabled()
        assert (await api.get(path)).ok().body["metadata"]["annotations"]["partita.dev/retry"]
        await put_status(api, path, {"phase": "Queued"})
        await job.get_by_role("button", name="Suspend").click()
        await expect(job.get_by_role("button", name="Resume")).to_be_enabled()
        assert (await api.get(path)).ok().body["spec"]["suspend"] is True
        await expect(job.locator(".log")).to_be_visible()

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator(".gpu")).to_have_count(0)
        assert "train-detector" not in await page.content()
        await sign_in(page, "eve")
        await expect(job.get_by_role("button", name="Resume")).to_be_disabled()
        await expect(job).to_contain_text("You may not change jobs in namespace vision.")
        await page.goto(f"{url}/#/jobs/vision/nosuch")
        await expect(job.locator(".trouble")).to_have_text(
            "This job cannot be shown: it does not exist, or you may not see it."
        )


async def test_it_says_that_what_it_shows_is_old_and_connects_again(
    serve, visit, api: Api, watches_work
) -> None:
    await make_partition(api, "shared")
    live, notice, operator = "#live", "#notice", "#operator"
    async with serve(times=Times(longest_watch_pause=0.05, check_operator=0.05)) as url:
        page = await visit(url, quiet=False)
        await expect(page.locator(live)).to_have_text("No API server")
        await expect(page.locator(notice)).to_contain_text("The API server has not answered for")
        await expect(page.locator(operator)).to_be_hidden()
        watches_work.set()
        await expect(page.locator(live)).to_have_text("Live")
        await expect(page.locator(operator)).to_contain_text("No operator is running")
        await api.post("/api/v1/namespaces", {"metadata": {"name": "partita-system"}})
        await make_lease(api)
        await expect(page.locator(operator)).to_be_hidden()
        (await api.delete(f"{LEASES}/partita-operator")).ok()
    await expect(page.locator(live)).to_have_text("Reconnecting")
    await expect(page.locator(notice)).to_contain_text(
        "The console does not answer: the page shows"
    )
    await make_partition(api, "late")
    async with serve(port=int(url.rpartition(":")[2])):
        await expect(page.get_by_role("heading", name="late")).to_be_visible()
        await expect(page.locator(live)).to_have_text("Live")


async def test_each_list_can_be_sorted_and_each_job_has_its_page(serve, visit, api: Api) -> None:
    await demo(api)
    failed = {
        "phase": "Failed", "reason": "OutOfMemory", "message": "used more than 8.0 GiB: ask for more",
        "completionTime": "2026-01-01T12:00:00Z", "peakMemory": "8Gi",
        "assignment": {"servers": ["shared-0"], "node": "gpu-node-1", "memory": "8Gi",
                       "pod": "diverged-1", "attempt": 1},
        "attempts": [
            {"number": 1, "servers": ["shared-0"], "node": "gpu-node-1", "pod": "diverged-1",
             "memory": "8Gi", "peakMemory": "8Gi", "startTime": "2026-01-01T11:00:00Z",
             "endTime": "2026-01-01T12:00:00Z", "outcome": "OutOfMemory", "exitCode": 1,
             "message": "CUDA out of memory"},
        ],
    }  # fmt: skip
    await make_job(api, "diverged", "speech", "shared", memory="8Gi", status=failed)
    for n in range(60):
        await make_job(api, f"done-{n:02}", "vision", "shared", status={"phase": "Succeeded"})
    async with serve() as url:
        page = await visit(url)
        tabs, rows = page.locator(".tabs button"), page.locator(".queue tbody tr")
        heads, search = page.locator(".queue th button"), page.locator("#filter")
        await expect(tabs).to_have_text(["Waiting 6", "Running 8", "Finished 70", "Failed 1"])
        await tabs.nth(1).click()
        await heads.nth(1).click()
        await expect(rows.first).to_contain_text("sweep-")  # 6 GiB
        await heads.nth(1).click()
        await expect(rows.first).to_contain_text("llm-adapter")
        await search.fill("sweep")
        await expect(page).to_have_url(
            f"{url}/?list.shared=running&sort.shared=-memory&filter=sweep"
        )
        await page.reload()
        await expect(rows).to_have_count(2)
        await expect(search).to_have_value("sweep")
        await search.fill("")
        await tabs.nth(2).click()
        await expect(page.locator(".queue .count")).to_have_text("50 of 70 shown")
        await expect(rows.first).to_contain_text("vit")  # 20 GiB
        await page.get_by_role("button", name="Show more (20 left)").click()
        await expect(rows).to_have_count(70)
        await heads.first.click()
        await expect(rows.first).to_contain_text("bert")  # of namespace language
        await search.fill("done-07")
        await expect(rows).to_have_count(1)
        await search.fill("")
        await tabs.nth(3).click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("used more than 8.0 GiB: ask for more")
        await rows.get_by_role("link", name="diverged").click()
        await expect(page).to_have_url(re.compile("#/jobs/speech/diverged$"))
        job = page.locator("#job")
        for text in (
            "speech/diverged", "Failed", "Out of memory used more than 8.0 GiB: ask for more",
            "Attempt 1: Out of memory", "ran for 1 h 0 min", "CUDA out of memory",
            "8.0 GiB allocated, at most 8.0 GiB used", "shared-0 on gpu-node-1",
            "partita logs diverged -n speech", "kubectl -n speech logs diverged-1",
        ):  # fmt: skip
            await expect(job).to_contain_text(text)
        await expect(job).not_to_contain_text("Not known")  # it has no neighbours any more
        await expect(page.locator("#board")).to_be_hidden()
        await page.go_back()
        await expect(page.locator(".gpu")).to_have_count(4)
        await expect(job).to_be_hidden()
        await expect(tabs.nth(3)).to_have_attribute("aria-pressed", "true")


async def test_a_proxy_that_adds_the_token_signs_viewers_in(serve, visit, api: Api, http) -> None:
    await make_partition(api, "shared")

    async def forward(request: web.Request) -> web.StreamResponse:
        if "session" not in request.cookies:
            signed_in = web.HTTPFound(request.path_qs)
            signed_in.set_cookie("session", "ada")
            raise signed_in
        headers = {"Authorization": f"Bearer {request.cookies['session']}"}
        async with http.get(f"{url}{request.path_qs}", headers=headers) as given:
            answer = web.StreamResponse(headers={"Content-Type": given.headers["Content-Type"]})
            await answer.prepare(request)
            async for chunk in given.content.iter_any():
                await answer.write(chunk)
            return answer

    app = web.Application()
    app.router.add_get("/{path:.*}", forward)
    async with serve(ByToken(Reviews(RIGHTS))) as url, TestServer(app) as proxy:  # type: ignore[arg-type]
        page = await visit(str(proxy.make_url("/")), quiet=False)
        await expect(page.get_by_role("heading", name="shared")).to_be_visible()
        await expect(page.locator("#sign-in")).to_be_hidden()
        await page.context.clear_cookies()  # the session has ended
        async with page.expect_navigation():
            await page.evaluate("window.stop()")
        await expect(page.get_by_role("heading", name="shared")).to_be_visible()
