"""`.ci/run` among stand-ins: what it runs, when it stops, and that nothing of it goes on."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.polling import holds_within

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"test", "test-gpu", "test-kueue", "test-terminations"}
"""`make coverage` runs what `make test` runs, and a short form of `make test-terminations`. Of the
others one needs a GPU, and one Kueue, which takes minutes to build."""
WAIT_SECONDS = 40

MAKE = """echo "$1" >>made
echo "$*" >>asked
[ -z "$SAYS" ] || echo "$SAYS"
[ "$1" = "$FAILS" ] && exit 7
[ "$1" = "$HANGS" ] && { echo $$ >hanging; exec sleep 1000; }
exit 0"""
BEHIND = """echo "$*" >>behind
[ -z "$HANGS" ] && exit 0
echo $$ >hanging-behind; exec sleep 1000"""


class Checkout:
    """A folder with the script and stand-ins for all that it calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
        self._stand_in("bin/make", MAKE)
        self._stand_in("bin/apt-get", 'echo "$@" >>installed')
        self._stand_in("bin/go", "exit 0")
        self._stand_in(".venv/bin/python", BEHIND)

    @contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Run the script, and end it if it still runs."""
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        with subprocess.Popen(
            ["bash", ".ci/run"],
            cwd=self.folder,
            env={"PATH": path, "FAILS": "", "HANGS": "", **environment},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def lines(self, name: str) -> list[str]:
        """Return what a stand-in wrote down."""
        path = self.folder / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def _stand_in(self, path: str, script: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_it_runs_lint_and_every_tier_and_says_what_each_took(checkout: Checkout):
    with checkout.running() as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    targets = set(re.findall(r"^(test[a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = checkout.lines("made")
    assert made[:2] == ["lint", "coverage"]
    assert sorted(made[2:]) == sorted(targets - ELSEWHERE)
    assert all(f"make {target} " in out.splitlines()[-1] for target in made)


def test_chaos_is_short_and_the_same_each_time(checkout: Checkout):
    with checkout.running() as process:
        process.communicate()
    (asked,) = [line for line in checkout.lines("asked") if line.startswith("test-chaos")]
    assert re.fullmatch(r"test-chaos ARGS=--seed \d+", asked)


def test_it_ends_with_the_first_that_fails(checkout: Checkout):
    with checkout.running(FAILS="coverage") as process:
        out, _ = process.communicate()
    assert process.returncode == 7
    assert checkout.lines("made") == ["lint", "coverage"]
    assert "make coverage" in out.splitlines()[-1]


@pytest.mark.parametrize("target", ["test-apiserver", "test-cluster"])
def test_what_runs_beside_one_that_fails_is_ended_first(checkout: Checkout, target: str):
    with checkout.running(FAILS=target) as process:
        out, _ = process.communicate()
    assert process.returncode == 7
    made = checkout.lines("made")
    assert {"test-apiserver", "test-browser", "test-cluster"} <= set(made)
    assert ("test-release" in made) == (target == "test-apiserver")
    assert "test-chaos" not in made
    assert all(f"make {target} " in out.splitlines()[-1] for target in made)


def test_what_lanes_print_says_which_target_it_is_of(checkout: Checkout):
    with checkout.running(SAYS="it works") as process:
        out, _ = process.communicate()
    assert "test-apiserver | it works" in out.splitlines()
    assert "test-cluster | it works" in out.splitlines()


def test_what_failed_is_shown_again_at_the_end(checkout: Checkout):
    with checkout.running(SAYS="it is broken", FAILS="test-cluster") as process:
        out, _ = process.communicate()
    assert process.returncode == 7
    shown = out.partition("== make test-cluster failed; its output ends with\n")[2].splitlines()
    assert shown[0] == "it is broken"


def test_nothing_goes_on_when_it_is_ended(checkout: Checkout):
    with checkout.running(HANGS="test-apiserver") as process:
        assert holds_within(
            lambda: bool(checkout.lines("hanging") and checkout.lines("hanging-behind")),
            WAIT_SECONDS,
        )
        started = [int(checkout.lines(name)[0]) for name in ("hanging", "hanging-behind")]
        assert all(Path(f"/proc/{pid}").exists() for pid in started)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
