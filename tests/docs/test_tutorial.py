"""The tutorial's commands, one after the other, on the demo that stays up."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from cli.test_processes import running

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "make demo ARGS=--serve": "begun by the test itself",
    ". .venv/bin/activate": "the test runs in it",
    "kubectl apply -k manifests/overlays/single-node": "tests/manifests",
    "kubectl apply -f examples/": "tests/manifests",
}
"""Lines that are not run here, and where they are."""


def lines() -> list[str]:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return [line for line in "".join(blocks).splitlines() if line not in ELSEWHERE]


async def run(line: str, kubeconfig: str) -> str:
    program, *args = shlex.split(line)
    assert program == "partita", f"{line}: nobody runs it"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "partita",
        *args,
        env={**os.environ, "KUBECONFIG": kubeconfig},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, f"{line}\n{said.decode()}"
    return said.decode()


@pytest.mark.timeout(300)
async def test_each_command_of_the_tutorial_does_what_it_says() -> None:
    said: dict[str, str] = {}
    async with running("demo", "--serve", "--speed", "40", within=280) as demo:
        assert demo.stderr is not None
        kubeconfig = ""
        async for printed in demo.stderr:
            if found := re.search(r"--kubeconfig (\S+)", printed.decode()):
                kubeconfig = found[1]
            if "stays up until Ctrl-C" in printed.decode():
                break
        for line in lines():
            if line.startswith("export KUBECONFIG="):
                continue  # its path is another each time
            said[line] = await run(line, kubeconfig)
    assert "shared" in said["partita top --once"]
    assert "kind: SharedGPUJob" in next(text for line, text in said.items() if "--dry-run" in line)
    assert "takes no more jobs" in said["partita drain shared-0"]
