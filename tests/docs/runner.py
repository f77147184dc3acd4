"""Run a page's commands in order and compare what they print with what the page shows.

Commands run in bash, as a reader would type them. Those that only read the cluster are repeated
until their output is as shown: the operator works meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

from docs.pages import ROOT, Command, File, Hidden, Page
from support.polling import TIMEOUT

__all__ = ["matches", "run_page", "shell"]

AGAIN_SECONDS = 0.5
READS = re.compile(r"kubectl( -n \S+)? (get|describe|logs)|partita (top|explain|logs)")
NAMES = ("crds", "docs", "examples", "manifests")
"""Folders of the repository that commands name."""


async def run_page(page: Page, folder: Path, kubeconfig: Path) -> None:
    """Run a page's commands; raise AssertionError with the first that is not as the page says.

    Parameters
    ----------
    folder
        An empty folder, in which the commands run.
    kubeconfig
        The cluster that `kubectl` and `partita` use.
    """
    for name in NAMES:
        (folder / name).symlink_to(ROOT / name)
    for step in page.steps:
        match step:
            case File():
                (folder / step.name).write_text(step.text, encoding="utf-8")
            case Hidden():
                code, printed = await shell(step.text, folder, kubeconfig)
                assert code == 0, f"{_place(page, step)}: {step.text}\n{printed}"
            case Command() if not step.not_run:
                await _check(page, step, folder, kubeconfig)


async def _check(page: Page, command: Command, folder: Path, kubeconfig: Path) -> None:
    text = command.text
    for word, value in page.words.items():
        text = re.sub(rf"(?<![\w.]){word}(?!\w)", value, text)
    again = command.output is not None and READS.match(text)
    code, printed = -1, ""
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT):
            while True:
                code, printed = await shell(text, folder, kubeconfig, until=command.until)
                shown = command.output is None or matches(command.output, printed, command.varies)
                if code == 0 and shown:
                    return
                if not again:
                    break
                await asyncio.sleep(AGAIN_SECONDS)
    raise AssertionError(
        f"{_place(page, command)}: {text}\n"
        f"exit code {code}\n"
        f"--- printed\n{printed}\n--- shown\n{command.output or ''}"
    )


def _place(page: Page, step: Command | Hidden) -> str:
    return f"{page.path.relative_to(ROOT)}:{step.line}"


async def shell(text: str, folder: Path, kubeconfig: Path, *, until: str = "") -> tuple[int, str]:
    """Run a command line; return its exit code and all that it printed.

    Parameters
    ----------
    until
        Interrupt it, as by Ctrl-C, once it has printed this.
    """
    process = await asyncio.create_subprocess_exec(
        *("bash", "-e", "-o", "pipefail", "-c", text),
        cwd=folder,
        env={
            **os.environ,
            "COLUMNS": "100",
            "HOME": str(kubeconfig.parent),
            "KUBECONFIG": str(kubeconfig),
            "NO_COLOR": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(TIMEOUT):
            while chunk := await process.stdout.read(1 << 16):
                printed += chunk
                if until and until in printed.decode(errors="replace"):
                    os.killpg(process.pid, signal.SIGINT)
                    until = ""
            await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    assert not until, f"{text} ended without printing {until!r}\n{printed.decode()}"
    return process.returncode or 0, printed.decode(errors="replace")


def matches(shown: str, printed: str, varies: tuple[str, ...] = ()) -> bool:
    """Tell whether output is as a page shows it; how wide its columns are does not matter."""
    pattern = ""
    for line in shown.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
            continue
        parts = re.split(r"(\.\.\.)", " ".join(line.split()))
        pattern += "".join(".*" if part == "..." else _words(part, varies) for part in parts)
        pattern += r"\n"
    lines = [" ".join(line.split()) for line in printed.strip().splitlines()]
    return re.fullmatch(pattern, "\n".join(lines) + "\n") is not None


def _words(text: str, varies: tuple[str, ...]) -> str:
    return " ".join(r"\S+" if word in varies else re.escape(word) for word in text.split(" "))
