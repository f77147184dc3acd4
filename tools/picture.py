"""`make picture`: draws docs/images/demo.svg, what `partita top` shows during the demo."""

import asyncio
import io
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from partita.cli.connection import open_cluster, read_state
from partita.cli.partitions.partition_view import Colours, partition_view
from partita.console.view import PartitionView, partitions_view

COLUMNS = 116
TARGET = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
DEMO = (sys.executable, "-m", "partita", "demo", "--serve")
DEADLINE = 60.0
"""Seconds within which the demo must show what the picture is to show."""


def main() -> None:
    """Run the demo until there is enough to see, and draw it."""
    demo = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - ourselves
    try:
        scene = asyncio.run(scene_of(kubeconfig_of(demo)))
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(draw(scene), encoding="utf-8")
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=30)


def kubeconfig_of(demo: subprocess.Popen[str]) -> str:
    """Read where the demo's API server is from what it prints, once jobs start."""
    kubeconfig = ""
    for line in demo.stdout or ():
        if match := re.search(r"KUBECONFIG=(\S+)", line):
            kubeconfig = match[1]
        if " starts on " in line:
            return kubeconfig
    raise SystemExit("the demo ended before a job started")


async def scene_of(kubeconfig: str) -> PartitionView:
    """Look until every GPU is shared and measured, and somebody waits for room."""
    deadline = time.monotonic() + DEADLINE
    async with open_cluster(kubeconfig) as kube:
        while time.monotonic() < deadline:
            for partition in partitions_view(await read_state(kube), datetime.now(UTC)):
                shared = all(
                    len(g.slices) > 1 and any(s.used for s in g.slices) for g in partition.gpus
                )
                reasons = {waiting.reason for waiting in partition.queue}
                if partition.gpus and shared and {"InsufficientMemory", "NeverFits"} <= reasons:
                    return partition
            await asyncio.sleep(0.2)
    raise SystemExit("the demo never showed all of it at once")


def draw(scene: PartitionView) -> str:
    """Render it as a picture."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(partition_view(scene, Colours(), queue_rows=10))
    svg = console.export_svg(title="partita top")
    # The page that shows it must not fetch fonts from elsewhere.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
