"""`make bench-console`: what an update costs the browser, and how soon a change is on the screen.

64 GPUs with 1,024 running jobs, 976 that wait, 20 namespaces. API server, console and this
program are one process, Chromium is beside it on the same machine.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from playwright.async_api import Page, async_playwright

from console.browser.conftest import CHROMIUM, QUIET
from console.sample_objects import GROUP_PATH, make_job, make_partition, make_server, put_status
from partita.console.access import Everything
from partita.console.feed import Feed
from partita.console.page_state import page_state_of
from partita.console.web_server import serve_console
from partita.kube.client import Kube
from partita.kube.connect import connect
from partita_testcluster.apiserver.server import EmbeddedAPIServer
from support.api import Api
from support.crds import install_crds

GPUS, SLICES, WAITING, NAMESPACES = 64, 16, 976, 20
ROUNDS = 40
AT_ONCE = 16

WATCH = """
() => {
  window.seen = [];
  const sum = document.querySelector('[data-gpu="bench-0"] .sum');
  new MutationObserver(() => requestAnimationFrame(() => seen.push([Date.now(), sum.textContent])))
    .observe(sum, { childList: true, characterData: true, subtree: true });
}
"""


async def main() -> None:
    async with EmbeddedAPIServer() as server, aiohttp.ClientSession() as session:
        api = Api(session, server.url, ssl_context=None)
        await install_crds(api)
        uids = await fill(api)
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
            async with connect(str(kubeconfig)) as client:
                await measure_server(Feed(Kube(client)))
                console = serve_console(client, Everything(), host="127.0.0.1", port=0)
                async with console as (_, port), async_playwright() as playwright:
                    browser = await playwright.chromium.launch(
                        executable_path=CHROMIUM, args=list(QUIET)
                    )
                    # What this program asks the page needs `eval`, which the page forbids.
                    page = await browser.new_page(
                        viewport={"width": 1280, "height": 900}, bypass_csp=True
                    )
                    await measure_page(page, f"http://127.0.0.1:{port}", api, uids)
                    await browser.close()


async def fill(api: Api) -> list[list[str]]:
    """Make the cluster; returns the UIDs of each GPU's jobs."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def job(n: int, **more: Any) -> Any:
        async with gate:
            return await make_job(api, f"job-{n:04}", f"team-{n % NAMESPACES}", "bench", **more)

    for n in range(NAMESPACES):
        await api.post("/api/v1/namespaces", {"metadata": {"name": f"team-{n}"}})
    await make_partition(api, "bench", gpus=GPUS, policy={"name": "tetris", "shadow": ["dqn"]})
    running = {"phase": "Running"}
    jobs = await asyncio.gather(
        *(job(n, memory="2Gi", status=running) for n in range(GPUS * SLICES))
    )
    await asyncio.gather(
        *(job(GPUS * SLICES + n, memory="30Gi", status=waits(n)) for n in range(WAITING))
    )
    rows = [jobs[n * SLICES : (n + 1) * SLICES] for n in range(GPUS)]
    for n, row in enumerate(rows):
        await make_server(api, f"bench-{n}", "bench", *((made, "2Gi", "1500Mi") for made in row))
    return [[made["metadata"]["uid"] for made in row] for row in rows]


def waits(place: int) -> dict[str, Any]:
    return {
        "phase": "Queued",
        "reason": "InsufficientMemory",
        "message": "needs 30.0 GiB of GPU memory; the most that is free is 5.2 GiB of 37.2 GiB",
        "queuePosition": place + 1,
    }


async def measure_server(feed: Feed) -> None:
    await feed.load()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        page_state_of(feed.state)
        times.append(1000 * (time.process_time() - start))
    tell("console: a page state is made, processor time", times)


async def measure_page(page: Page, url: str, api: Api, uids: list[list[str]]) -> None:
    await page.goto(url)
    await page.wait_for_function(f"document.querySelectorAll('.gpu').length === {GPUS}")
    await page.wait_for_function(f"document.querySelectorAll('.slice').length === {GPUS * SLICES}")
    tell("scripting: the first state", await durations(page))

    async def report(gpu: int, busy: int) -> None:
        used = f"{1000 + busy}Mi"
        jobs = {uid: {"memory": used} for uid in uids[gpu]}
        usage = {"usage": {"gpuUtilization": busy, "jobs": jobs}}
        await put_status(api, f"{GROUP_PATH}/gpuservers/bench-{gpu}", usage)

    await page.evaluate(WATCH)
    latencies = []
    for n in range(ROUNDS):
        at = time.time()
        await report(0, n)
        await page.wait_for_function(f"seen.some(([, text]) => text.includes('· {n} % busy'))")
        shown = await page.evaluate(f"seen.find(([, text]) => text.includes('· {n} % busy'))[0]")
        latencies.append(shown - 1000 * at)
    tell("scripting: one GPU reports", await durations(page))
    tell("change written to change on the screen", latencies)

    for n in range(ROUNDS // 4):
        await asyncio.gather(*(report(gpu, (n + 1) % 100) for gpu in range(GPUS)))
        await shows(page, "bench-63", f"· {n + 1} % busy")
    tell("scripting: all GPUs report", await durations(page))

    gate = asyncio.Semaphore(AT_ONCE)

    async def move(n: int, by: int) -> None:
        number = GPUS * SLICES + n
        path = f"{GROUP_PATH}/namespaces/team-{number % NAMESPACES}/sharedgpujobs/job-{number:04}"
        async with gate:
            await put_status(api, path, {"queuePosition": n + 1 + by})

    for by in (1, 2, 3):
        await asyncio.gather(*(move(n, by) for n in range(WAITING)))
        await page.wait_for_function(
            f"document.querySelector('.queue .place').textContent === '{by + 1}'"
        )
    tell("scripting: the whole queue moves up", await durations(page))


async def shows(page: Page, gpu: str, text: str) -> None:
    script = f"document.querySelector('[data-gpu=\"{gpu}\"] .sum').textContent.includes('{text}')"
    await page.wait_for_function(script)


async def durations(page: Page) -> list[float]:
    """Take what the page has measured since it was asked last."""
    found: list[float] = await page.evaluate(
        "() => { const all = performance.getEntriesByName('update').map((e) => e.duration);"
        " performance.clearMeasures('update'); return all; }"
    )
    return found


def tell(what: str, times: list[float]) -> None:
    """Print median, 95th percentile and the most."""
    ranked = sorted(times)
    p95 = ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))]
    print(
        f"{what}: median {statistics.median(ranked):.1f} ms, p95 {p95:.1f} ms, "
        f"most {ranked[-1]:.1f} ms ({len(ranked)} samples)",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main())
