"""Draws the pictures of README from a run of the demo.

`make picture` draws docs/images/demo.svg, the output of `partita top`. `make picture-console` draws
docs/images/console.png and console-phone.png, the page of the console in Debian's Chromium.
"""

import asyncio
import io
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from playwright.async_api import async_playwright
from rich.console import Console

from partita.cli.cluster_state import read_state
from partita.cli.connection import open_cluster
from partita.cli.partitions.partition_view import Colours, partition_view
from partita.console.access import ViewerAccess
from partita.console.view import PartitionView, partitions_view
from partita.console.web_server import serve_console
from partita.kube.connect import connect
from partita.models import Phase
from partita.store.state import State

COLUMNS = 116
SPEED = "2"
"""Simulated seconds in a second: slow enough for several samples in the console's chart."""
IMAGES = Path(__file__).parent.parent / "docs" / "images"
DEMO = (sys.executable, "-m", "partita", "demo", "--serve", "--speed", SPEED)
DEADLINE = 300.0
"""Seconds within which the demo must reach a state that is suitable for the pictures."""
FINISHED = 2
"""Number of jobs that must have finished. It is low, because the queue must not be empty yet."""
CHROMIUM = "/usr/bin/chromium"
SCREENS = {"console": (1280, 900), "console-phone": (375, 812)}
"""Width and height in pixels, by the picture's name."""


def main() -> None:
    """Run the demo until its state is suitable for the pictures, and draw it."""
    draw = draw_console if sys.argv[1:] == ["console"] else draw_top
    demo = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - our own command
    try:
        asyncio.run(draw(kubeconfig_of(demo)))
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=30)


def kubeconfig_of(demo: subprocess.Popen[str]) -> str:
    """Read the path of the demo's kubeconfig from its output, once it submits jobs."""
    kubeconfig = ""
    for line in demo.stdout or ():
        if match := re.search(r"KUBECONFIG=(\S+)", line):
            kubeconfig = match[1]
        if line.startswith("submitting "):
            return kubeconfig
    raise SystemExit("the demo ended before it submitted jobs")


async def interesting(kubeconfig: str) -> PartitionView:
    """Wait until GPUs are shared and there are finished, waiting and never-fitting jobs."""
    deadline = time.monotonic() + DEADLINE
    async with open_cluster(kubeconfig) as kube:
        while time.monotonic() < deadline:
            state = await read_state(kube)
            for partition in partitions_view(state, datetime.now(UTC)):
                if shows_enough(partition, state):
                    return partition
            await asyncio.sleep(0.5)
    raise SystemExit("the demo never showed all of it at once")


def shows_enough(partition: PartitionView, state: State) -> bool:
    """Return whether the state contains everything that the pictures should show."""
    shared = all(len(gpu.slices) > 1 and any(s.used for s in gpu.slices) for gpu in partition.gpus)
    reasons = {job.reason for job in partition.queue}
    finished = sum(job.status.phase is Phase.SUCCEEDED for job in state.jobs.values())
    waiting = len(reasons - {"NeverFits", "Suspended"})
    rest = "NeverFits" in reasons and waiting > 0 and finished >= FINISHED
    return bool(partition.gpus) and shared and rest


async def draw_top(kubeconfig: str) -> None:
    """Draw the output of `partita top`, with the complete reason of each waiting job."""
    partition = await interesting(kubeconfig)
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(partition_view(partition, Colours(), queue_rows=10, wrap=True))
    svg = console.export_svg(title="partita top")
    # A page with the picture must not fetch fonts from other sites.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (IMAGES / "demo.svg").write_text(svg, encoding="utf-8")


async def draw_console(kubeconfig: str) -> None:
    """Draw the page of the console on a desktop and on a phone."""
    async with (
        connect(kubeconfig) as api,
        serve_console(api, ViewerAccess(), host="127.0.0.1", port=0) as (_, port),
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        pages = {}
        for name, (width, height) in SCREENS.items():
            page = await browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="light"
            )
            await page.goto(f"http://127.0.0.1:{port}")
            pages[name] = page
        await interesting(kubeconfig)
        for name, page in pages.items():
            await page.screenshot(path=IMAGES / f"{name}.png", full_page=name == "console")
        await browser.close()


if __name__ == "__main__":
    main()
