"""`.ci/run` among stand-ins: what it runs, when it stops, and that nothing of it goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.polling import TIMEOUT, holds_within

ROOT = Path(__file__).parents[2]
TIERS = r"test-apiserver\ntest-cluster ARGS=--smoke cluster\ntest-chaos ARGS=--seed 28"
"""What `tools/tiers.py` says, as printf takes it."""

MAKE = """echo "$1" >>made
echo "$*" >>asked
echo "$PYTEST_ADDOPTS" >>addopts
[ -z "$SAYS" ] || echo "$SAYS"
[ "$1" = "$FAILS" ] && exit 7
[ "$1" = "$HANGS" ] && { echo $$ >hanging; exec sleep 1000; }
exit 0"""
PYTHON = """[ "$1" = tools/tiers.py ] && { echo "$*" >>asked_tiers; printf "$TIERS"; exit 0; }
echo "$*" >>behind
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
        self._stand_in(".venv/bin/python", PYTHON)

    @contextmanager
    def running(self, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Run the script, and end it if it still runs."""
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        with subprocess.Popen(
            ["bash", ".ci/run", *words],
            cwd=self.folder,
            env={"PATH": path, "FAILS": "", "HANGS": "", "TIERS": TIERS, **environment},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def printed(self, *words: str, code: int = 0, **environment: str) -> str:
        """Run the script to its end; return what it prints."""
        with self.running(*words, **environment) as process:
            out, _ = process.communicate()
        assert process.returncode == code
        return out

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


def test_it_runs_lint_the_tests_and_the_tiers_that_a_change_needs(checkout: Checkout):
    out = checkout.printed()
    asked = checkout.lines("asked")
    assert asked[0] == ".venv/.dev .venv/.go"
    assert sorted(asked[1:]) == sorted(["lint", "test", *TIERS.split(r"\n")])
    assert all(f"make {words} " in out.splitlines()[-1] for words in asked[1:])


def test_all_tiers_run_with_coverage(checkout: Checkout):
    checkout.printed("all")
    assert checkout.lines("asked_tiers") == ["tools/tiers.py --all"]
    assert "coverage" in checkout.lines("made")
    assert "test" not in checkout.lines("made")


def test_after_one_that_fails_no_more_are_started(checkout: Checkout):
    out = checkout.printed(code=7, FAILS="lint", TIERS=TIERS + r"\ntest-b" * 30 + r"\ntest-last")
    assert {"lint", "test-apiserver"} <= set(checkout.lines("made"))
    assert "test-last" not in checkout.lines("made")
    assert "make lint " in out.splitlines()[-1]


def test_one_that_takes_long_keeps_none_waiting(checkout: Checkout):
    with checkout.running(HANGS="test-apiserver"):
        assert holds_within(lambda: "test-chaos" in checkout.lines("made"), TIMEOUT)


def test_what_is_printed_says_which_target_it_is_of(checkout: Checkout):
    out = checkout.printed(SAYS="it works")
    assert "test-apiserver | it works" in out.splitlines()
    assert "lint | it works" in out.splitlines()


def test_what_failed_is_shown_again_at_the_end(checkout: Checkout):
    out = checkout.printed(code=7, SAYS="it is broken", FAILS="test-cluster")
    shown = out.partition("== make test-cluster failed; its output ends with\n")[2].splitlines()
    assert shown[0] == "it is broken"


def test_a_test_that_passed_at_its_second_try_is_shown_at_the_end(checkout: Checkout):
    summary = "==== rerun test summary info ====\nRERUN test_a\nE  assert 1 == 2\nPASSED test_a"
    out = checkout.printed(SAYS=f"{summary}\n==== 1 passed, 1 rerun ====", TIERS="test-a")
    end = out.partition("== ran twice")[2].splitlines()
    assert end[1:4] == summary.splitlines()[1:]


@pytest.mark.parametrize(("words", "again"), [((), True), (("all",), False)])
def test_each_test_runs_once_when_all_are_run(
    checkout: Checkout, words: tuple[str, ...], *, again: bool
):
    checkout.printed(*words)
    assert any("--reruns 1" in line for line in checkout.lines("addopts")) is again


def test_nothing_goes_on_when_it_is_ended(checkout: Checkout):
    with checkout.running(HANGS="test-apiserver") as process:
        assert holds_within(
            lambda: bool(checkout.lines("hanging") and checkout.lines("hanging-behind")), TIMEOUT
        )
        started = [int(checkout.lines(name)[0]) for name in ("hanging", "hanging-behind")]
        assert all(Path(f"/proc/{pid}").exists() for pid in started)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
