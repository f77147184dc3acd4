"""The page as people use it: with a mouse, a keyboard, a phone; and with bad words in it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from console.reviews import Reviews
from console.scenes import (
    GROUP_PATH,
    make_demo,
    make_job,
    make_partition,
    make_server,
    put_status,
)
from partita.console.access import ByToken
from support.api import MERGE, Api

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(120)]

TEAMS = ("vision", "language", "speech")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def demo(api: Api) -> None:
    for name in TEAMS:
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await make_demo(api, "shared", {name: name for name in TEAMS})


async def test_it_shows_gpus_slices_queue_policies_and_the_last_hours(
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
        await expect(rows.last).to_contain_text("Suspended")
        await expect(page.locator(".policies li")).to_contain_text(
            ["lookahead", "same in 93 % of 1,284", "same in 69 %"]
        )
        await expect(page.locator(".trouble")).to_contain_text("shared-3 is Faulted")
        await expect(page.locator(".timeline title")).to_contain_text("5 jobs wait")
        assert await page.locator("path.allocated").get_attribute("d")
        await expect(page.get_by_role("status").first).to_have_text("Live")


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
        await expect(page.locator(".queue")).to_contain_text("Nobody waits.")
        usage = {"usage": {"jobs": {job["metadata"]["uid"]: {"memory": "5Gi"}}}}
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
    place = {"namespace": MARKUP, "name": MARKUP}
    ledger = {"status": {"node": MARKUP, "allocations": {job["metadata"]["uid"]: place}}}
    (await api.patch(f"{GROUP_PATH}/gpuservers/shared-0/status", ledger, MERGE)).ok()
    async with serve() as url:
        page = await visit(url)
        await expect(page.locator(".slice .label")).to_have_text(MARKUP)
        await page.locator(".slice").hover()
        await expect(page.locator("#detail div").first).to_have_text(f"{MARKUP}/{MARKUP}")
        for place_of in (".message", ".trouble", ".policies .refused"):
            await expect(page.locator(place_of).first).to_have_text(MARKUP)
        await expect(page.locator(".where")).to_contain_text(MARKUP)
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
        gone = {"allocations": {one["metadata"]["uid"]: None}}
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


CONTRAST = """
() => {
  const light = (c) => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    const own = getComputedStyle(node).backgroundColor;
    return own === "rgba(0, 0, 0, 0)" && node.parentElement ? ground(node.parentElement) : own;
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !node.checkVisibility() || node.closest("svg, .skip, .hidden")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${node.tagName}.${node.className} ${node.textContent}: ${ratio.toFixed(2)}`);
  }
  return found;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_are_legible_in_light_and_dark(serve, visit, api: Api, scheme: str) -> None:
    """WCAG 2.2, criterion 1.4.3: a contrast of at least 4.5."""
    await demo(api)
    async with serve() as url:
        page = await visit(url, color_scheme=scheme)
        await expect(page.locator(".gpu")).to_have_count(4)
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 20, 25)"}[scheme]
        assert await page.evaluate(CONTRAST) == []


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


async def test_the_picture(serve, visit, api: Api, pytestconfig) -> None:
    """Draws docs/images/console.png where `--picture` says so; what is drawn is tested above."""
    await demo(api)
    async with serve() as url:
        page = await visit(url, color_scheme="light")
        await expect(page.locator(".gpu")).to_have_count(4)
        picture = await page.screenshot(full_page=True)
        assert len(picture) < 200_000
        if (path := pytestconfig.getoption("--picture")) is not None:
            path.write_bytes(picture)
