"""What is read of the logs of MPS."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita.agent.mps.logs import MPSLog, mps_logs

FAULT = "[2026-11-21 20:00:00.000 Server    17] Server encountered a fatal exception"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_fault_is_returned_once(path: Path):
    log = MPSLog(path)
    assert log.faults() == []
    add(path, f"Server has started\n{FAULT}\nClient 4 disconnected\n")
    assert log.faults() == [FAULT]
    assert log.faults() == []


def test_what_was_there_before_is_history(path: Path):
    add(path, f"{FAULT}\n")
    log = MPSLog(path)
    assert log.faults() == []
    add(path, f"{FAULT} again\n")
    assert log.faults() == [f"{FAULT} again"]


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        (FAULT, True),
        ("Status of client {0, 17} is FAULT", True),
        ("Server has started", False),
        ("Non-fatal error of client {0, 17}", False),
        ("a NON-FATAL exception", False),
        ("a non fatal exception", False),
        ("Client {PID: 4267, Context ID: 0} connected", False),
        ("Device pinned memory limit for device 0 set to its default", False),
    ],
)
def test_only_fatal_faults_count(path: Path, line: str, tells: bool):  # noqa: FBT001
    log = MPSLog(path)
    add(path, f"{line}\n")
    assert log.faults() == ([line] if tells else [])


def test_a_line_counts_once_it_is_whole(path: Path):
    log = MPSLog(path)
    add(path, "a fatal ")
    assert log.faults() == []
    add(path, "exception\n")
    assert log.faults() == ["a fatal exception"]


def test_the_log_of_the_next_daemon_is_read_from_its_start(path: Path):
    add(path, "a long log of the daemon before\n" * 9)
    log = MPSLog(path)
    path.replace(path.with_suffix(".log.old"))
    assert log.faults() == []
    add(path, f"{FAULT}\n")
    assert log.faults() == [FAULT]


def test_a_log_that_was_cut_is_read_from_its_start(path: Path):
    add(path, "a long log\n" * 99)
    log = MPSLog(path)
    path.write_text(f"{FAULT}\n")
    assert log.faults() == [FAULT]


def test_a_long_log_is_read_in_parts(path: Path):
    log = MPSLog(path, at_once=16)
    add(path, f"{FAULT}\n")
    found = [line for _ in range(len(FAULT)) for line in log.faults()]
    assert [line[-16:] for line in found] == [FAULT[-16:]]


def test_what_is_no_text_is_passed_over(path: Path):
    log = MPSLog(path)
    path.write_bytes(b"\xff\xfe\x00 fatal\n")
    assert len(log.faults()) == 1


@pytest.mark.parametrize(
    "name", ["foreground.log", "control.log", "server.log", "partita/server.log"]
)
def test_every_log_of_mps_is_read(tmp_path: Path, name: str):
    logs = mps_logs(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    add(
        tmp_path / name,
        "[2024-12-10 06:38:01.158 Control    64] Server encountered a fatal exception. Shutting down\n",
    )
    assert len([fault for log in logs for fault in log.faults()]) == 1
