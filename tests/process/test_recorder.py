"""The recorder keeps up, gives way, and never disturbs who hands it decisions."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from partita.process import recorder as module
from partita.process.recorder import Recorder, recording
from partita.process.recording_files import RecordingFiles
from partita.times import Times
from partita_policies import GPU, Placement, RunningJob
from partita_policies.check_cases import one_small_job
from partita_policies.recordings import Decision, Recorded, read_recordings
from support.polling import TIMEOUT

SNAPSHOT = one_small_job()
DECISION = Decision("fifo", (Placement("job", ("gpu",)),))


@pytest.fixture(autouse=True)
def loud() -> None:
    structlog.reset_defaults()  # a command's test before us may have made it quiet


class Disk:
    """Stands in for the files: it can be slow, or full."""

    def __init__(self) -> None:
        self.folder = Path("recordings")
        self.written: list[bytes] = []
        self.full = False
        self.asked = 0
        self.free = threading.Event()
        self.free.set()
        self.busy = threading.Event()

    def write(self, _: str, pieces: Iterator[bytes]) -> None:
        self.asked += 1
        self.busy.set()
        self.free.wait(TIMEOUT)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written.append(b"".join(pieces))

    def close(self) -> None:
        pass


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def recorder(disk: Disk) -> Recorder:
    return Recorder(disk, Times(close_recording=TIMEOUT))  # type: ignore[arg-type]


def at(time: float):
    return replace(SNAPSHOT, time=time)


async def test_what_is_offered_can_be_read_again(tmp_path):
    async with recording(tmp_path / "here", 1 << 20, Times(close_recording=TIMEOUT)) as recorder:
        recorder.offer(SNAPSHOT, DECISION)
        recorder.offer(SNAPSHOT, replace(DECISION, placements=()))
    (path,) = (tmp_path / "here").iterdir()
    assert list(read_recordings([tmp_path / "here"])) == [
        Recorded(str(path), 1, SNAPSHOT, DECISION),
        Recorded(str(path), 2, SNAPSHOT, replace(DECISION, placements=())),
    ]


async def test_without_a_folder_nothing_is_recorded():
    async with recording(None, 1) as recorder:
        assert recorder is None


def test_the_same_decision_is_written_once_in_a_while(recorder, disk):
    held = GPU("gpu", "node", 10, 2, running=(RunningJob("other", memory=1, started=0.5),))
    recorder.offer(replace(at(1.0), gpus=(held,)), DECISION)
    recorder.offer(replace(at(2.0), gpus=(held,)), replace(DECISION, seconds=0.5))
    recorder.offer(replace(at(3.0), gpus=(held,), partition="other"), DECISION)
    recorder.offer(replace(at(4.0), gpus=(held,)), replace(DECISION, policy="sjf"))
    recorder.offer(replace(at(5.0), gpus=(held,)), DECISION)
    recorder.start()
    recorder.close()
    assert len(disk.written) == 4
    again = Recorder(disk, Times(repeat_decision=0.0, close_recording=TIMEOUT))
    again.offer(at(1.0), DECISION)
    again.offer(at(2.0), DECISION)
    again.start()
    again.close()
    assert len(disk.written) == 6


def test_what_a_slow_disk_cannot_take_is_left_out(recorder, disk):
    disk.free.clear()
    recorder.start()
    recorder.offer(at(0.0), DECISION)
    assert disk.busy.wait(TIMEOUT)
    for n in range(module.WAITING + 3):
        recorder.offer(replace(SNAPSHOT, partition=f"p{n}"), DECISION)
    assert recorder.left_out == 3
    disk.free.set()
    recorder.close()
    assert len(disk.written) == module.WAITING + 1


def test_a_disk_that_hangs_does_not_keep_the_operator_from_ending(disk):
    recorder = Recorder(disk, Times(close_recording=0.01))
    disk.free.clear()
    recorder.start()
    for n in range(module.WAITING + 2):
        recorder.offer(replace(SNAPSHOT, partition=f"p{n}"), DECISION)
    recorder.close()
    assert disk.written == []
    disk.free.set()


def test_a_full_disk_is_told_once_and_left_alone_for_a_while(recorder, disk):
    disk.full = True
    with capture_logs() as logs:
        for n in range(5):
            recorder.offer(replace(SNAPSHOT, partition=f"p{n}"), DECISION)
        recorder.start()
        recorder.close()
    assert disk.asked == 1
    assert recorder.left_out == 5
    assert recorder.problem == (
        "decisions are not recorded in recordings: [Errno 28] No space left on device"
    )
    assert [(log["event"], log["log_level"]) for log in logs] == [("not recording", "warning")]


def test_once_there_is_room_again_it_goes_on(disk):
    recorder = Recorder(disk, Times(retry_recording=0.0, close_recording=TIMEOUT))
    disk.full = True
    with capture_logs() as logs:
        recorder.start()
        recorder.offer(at(1.0), DECISION)
        recorder.offer(at(2.0), replace(DECISION, policy="second"))
        while disk.asked < 2:
            disk.busy.wait(TIMEOUT)
        disk.full = False
        recorder.offer(at(3.0), replace(DECISION, policy="third"))
        recorder.close()
    assert recorder.problem == ""
    assert len(disk.written) >= 1
    assert [log["event"] for log in logs] == ["not recording", "recording again"]


def test_what_cannot_be_written_as_json_ends_nothing(tmp_path):
    recorder = Recorder(RecordingFiles(tmp_path, limit=1 << 20), Times(close_recording=TIMEOUT))
    with capture_logs() as logs:
        recorder.offer(at(float("nan")), DECISION)
        recorder.start()
        recorder.close()
    assert "not JSON compliant" in recorder.problem
    assert len(logs) == 1
    assert list(tmp_path.iterdir()) == []
