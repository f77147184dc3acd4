"""The tutorial, from its first command to its last, on the demo that it starts."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from cli.test_processes import running
from docs.pages import ROOT, read_page
from docs.runner import matches, run_page


@pytest.mark.timeout(600)
async def test_each_command_of_the_tutorial_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo, when it is stopped, has ended as its examples say, and leaves nothing."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setenv("COLUMNS", "200")
    page = read_page(ROOT / "docs" / "tutorial.md")
    start, *_ = page.commands
    assert start.text == "make demo ARGS=--serve"
    async with running("demo", "--serve", "--speed", "40", within=580) as demo:
        assert demo.stderr is not None
        printed = ""
        async for line in demo.stderr:
            printed += line.decode()
            if "stays up until Ctrl-C" in printed:
                break
        assert start.output is not None
        shown = printed.replace(str(own), "/tmp")
        assert matches(start.output.removesuffix("..."), shown), printed
        kubeconfig = re.search(r"export KUBECONFIG=(\S+)", printed)
        assert kubeconfig is not None
        await run_page(page, tmp_path, Path(kubeconfig[1]))
        demo.send_signal(signal.SIGINT)
        assert await demo.wait() == 0
    assert not list(own.iterdir())


def test_figures_in_the_text_are_those_of_the_demo_and_its_examples() -> None:
    """Numbers outside the blocks, each beside where it comes from."""
    from partita_testcluster.cli import demo
    from partita_testcluster.cli.examples import load_examples

    text = " ".join((ROOT / "docs" / "tutorial.md").read_text().split())
    examples = load_examples()
    spec = examples.partition.spec
    speed = next(p.default for p in demo.command.params if p.name == "speed")
    assert spec.gpus == 2
    assert f"two GPUs with {demo._GPU_MEMORY >> 30} GiB each, and {len(examples.jobs)} jobs" in text
    assert f"keeps {spec.sharing.memory_reserve_percent} % in reserve" in text
    assert 2 * 60 / speed == 8, "two hours of simulated time, which is eight minutes"
    assert "two hours of simulated time, which is eight minutes here" in text
    assert "runs for 10 simulated seconds" in text
    assert 10 / speed < 1
