"""Workloads on the page: services, idle and waiting Pods, and the page of each."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from console.browser.test_page import PHONE, TEAMS, demo
from console.sample_objects import make_workloads
from support.api import Api

pytestmark = pytest.mark.usefixtures("clean")


async def both(api: Api) -> None:
    """The demo with workloads beside its jobs."""
    await demo(api)
    await make_workloads(api, "shared", TEAMS[0], TEAMS[1])


async def test_workloads_are_marked_on_gpus_and_in_the_lists_and_have_pages(
    serve, visit, api: Api
) -> None:
    await both(api)
    async with serve() as url:
        page = await visit(url)
        gpu = page.locator(".gpu").nth(2)
        await expect(gpu.locator(".slice[data-lasting]")).to_have_text(
            ["serve-5f6d8-x2x7k", "notebook-0"]
        )
        await expect(gpu.locator(".slice[data-idle]")).to_have_text(["notebook-0"])
        await gpu.locator(".slice[data-idle]").hover()
        await expect(page.locator("#detail")).to_contain_text("service of StatefulSet/notebook")
        await expect(page.locator("#detail")).to_contain_text("idle: no kernel has run for 3 days")
        await expect(page.locator(".legend")).to_contain_text("service: never ends by itself")

        rows = page.locator(".queue tbody tr")
        await expect(rows).to_have_count(8)
        waiting = rows.filter(has_text="serve-5f6d8-q9v4t")
        said = "Deployment/serve · service · starts in 3 days to 6 days"
        await expect(waiting).to_contain_text(said)
        await expect(waiting).to_contain_text("the most that is free is 2.2 GiB")
        await expect(rows.filter(has_text="tune-m4kq2")).to_contain_text("kueue.x-k8s.io/admission")
        await page.get_by_role("button", name="Running").click()
        await expect(rows).to_have_count(10)
        await expect(rows.filter(has_text="notebook-0")).to_contain_text("idle for 3 days")
        await page.locator("#filter").fill("deployment/serve")
        await expect(rows).to_have_count(1)
        await page.locator("#filter").fill("")
        await page.get_by_role("link", name="serve-5f6d8-x2x7k").first.click()
        await expect(page).to_have_url(re.compile("#/workloads/vision/serve-5f6d8-x2x7k$"))
        shown = page.locator("#job")
        for text in (
            "vision/serve-5f6d8-x2x7k", "Runs", "Service", "8.0 GiB", "6.0 GiB", "41 % of the time",
            "language/notebook-0", "ResourceClaimTemplate gpu", "PyTorch",
            "annotation partita.dev/framework of its Pod",
            "partita explain pod/serve-5f6d8-x2x7k -n vision",
        ):  # fmt: skip
            await expect(shown).to_contain_text(text)
        assert await shown.locator("path.measured").get_attribute("d")
        await expect(shown.locator(".timeline title")).to_contain_text(
            "now 6.0 of 8.0 GiB are used, and kernels run for 41 percent of the time"
        )
        await page.goto(f"{url}/#/workloads/language/notebook-0")
        await expect(shown.locator(".badge").last).to_have_text("Idle for 3 days")
        await expect(shown.locator(".advice")).to_contain_text("scale it to zero or delete it")


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
    await both(api)
    async with serve() as url:
        page = await visit(url, color_scheme=scheme)
        await expect(page.locator(".slice[data-lasting]")).to_have_count(2)
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 20, 25)"}[scheme]
        assert await page.evaluate(CONTRAST) == []
        shown = page.locator("#job")
        for name in ("language/notebook-0", "vision/serve-5f6d8-q9v4t"):
            await page.goto(f"{url}/#/workloads/{name}")
            await expect(shown.locator("h1")).to_have_text(name)
            await shown.get_by_role("button", name="Ask the policies").click()
            answer = shown.locator(".answers li").first
            await expect(answer).to_contain_text("planner")
            assert await page.evaluate(CONTRAST) == []
        await expect(shown.locator(".badge").first).to_have_text("Waits, place 6")
        await expect(shown).to_contain_text("give its Pod a priorityClassName")
        await expect(shown).to_contain_text("in 3 days to 6 days, with 90 % probability")
        await expect(answer).to_contain_text("active")
        await expect(answer).to_contain_text("Does not start it")


@pytest.mark.parametrize("width", [320, 360, 768])
async def test_nothing_is_wider_than_a_small_screen_nor_cut_off(
    serve, visit, api: Api, width: int
) -> None:
    await both(api)
    async with serve() as url:
        page = await visit(url, **PHONE | {"viewport": {"width": width, "height": 780}})
        names = page.locator(".gpu").first.locator(".names a")
        await expect(names).to_have_text(["train-detector", "asr-finetune", "embed-docs"])
        notebook = page.locator(".gpu").nth(2).locator(".names a").filter(has_text="notebook-0")
        await expect(notebook).to_have_text("notebook-0 (service, idle)")
        await page.locator(".slice").first.tap()
        await expect(page.locator("#detail")).to_contain_text("vision/train-detector")
        cut = "all => all.filter(node => node.scrollWidth > node.clientWidth + 1).length"
        for place in (".names a", ".job a", ".why", ".legend li"):
            assert await page.locator(place).evaluate_all(cut) == 0
        wide = "document.documentElement.scrollWidth"
        assert await page.evaluate(wide) <= width
        for link, title in ((names.nth(1), "asr-finetune"), (notebook, "notebook-0")):
            if width < 760:  # else the slices have their names
                await link.click()
                await expect(page.locator("#job h1")).to_contain_text(f"/{title}")
                assert await page.evaluate(wide) <= width
                await page.go_back()
