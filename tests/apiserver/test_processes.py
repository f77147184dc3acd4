from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apiserver import processes
from apiserver.processes import NotReadyError, ServerProcess, poll

SLEEPER = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
print("up", flush=True)
time.sleep(600)
"""

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + SLEEPER


def alive(pid: int) -> bool:
    """Say whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def server(folder: Path, script: str) -> tuple[ServerProcess, Path]:
    ready = folder / "ready"
    command = [sys.executable, "-c", script, ready]
    return ServerProcess(command, log=folder / "log"), ready


def test_starts_waits_until_ready_and_stops(tmp_path: Path):
    process, ready = server(tmp_path, SLEEPER)
    assert process.pid is None
    process.start(ready.exists, seconds=20)
    pid = process.pid
    assert pid is not None
    assert alive(pid)
    assert poll(lambda: process.tail() == "up", 5)
    process.stop()
    assert process.pid is None
    assert not alive(pid)
    process.stop()  # a second time is harmless


def test_one_that_ignores_term_is_killed(tmp_path: Path):
    process, ready = server(tmp_path, STUBBORN)
    process.start(ready.exists, seconds=20)
    pid = process.pid
    assert pid is not None
    process.stop(grace=0.2)
    assert not alive(pid)


def test_one_that_ends_says_how_and_what_it_said(tmp_path: Path):
    process, _ = server(tmp_path, "import sys; print('bad flag'); sys.exit(3)")
    with pytest.raises(NotReadyError, match=r"python.* ended with code 3.*\n.*bad flag"):
        process.start(lambda: False, seconds=20)


def test_one_that_is_never_ready_is_stopped(tmp_path: Path):
    process, _ = server(tmp_path, SLEEPER)
    with pytest.raises(NotReadyError, match=r"was not ready within 0\.5 s"):
        process.start(lambda: False, seconds=0.5)
    assert process.pid is None


OWNER = """
import os, pathlib, sys, time
from apiserver.processes import ServerProcess
folder = pathlib.Path(sys.argv[1])
process = ServerProcess([sys.executable, "-c", sys.argv[2], folder / "ready"], log=folder / "log")
process.start((folder / "ready").exists, seconds=20)
print(process.pid, flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path):
    tests = Path(processes.__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), STUBBORN],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(tests)},
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert poll(lambda: not alive(pid), 10)
