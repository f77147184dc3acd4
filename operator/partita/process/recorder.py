"""Records the decisions of all partitions for `partita replay`.

A thread writes them, so recording never blocks the control loop. Decisions that come faster than
the thread writes are dropped and counted. A full disk pauses the recording only.
"""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from partita.process.recording_files import RecordingFiles
from partita.times import Times
from partita_policies.recordings import Decision, dump_record
from partita_policies.types import Snapshot

__all__ = ["Recorder", "recording"]

WAITING = 64
"""Maximum number of decisions that wait to be written."""
REST = 9.0
"""Seconds of pause for each second of writing: the thread uses at most a tenth of a core."""


_Item = tuple[Snapshot, Decision]


@dataclass
class Recorder:
    """Queues decisions for the thread that writes them."""

    files: RecordingFiles
    times: Times = Times()

    def __post_init__(self) -> None:
        self._items: queue.Queue[_Item | None] = queue.Queue(WAITING)
        self._last: dict[str, tuple[float, _Item]] = {}
        self._not_before = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._log = structlog.get_logger().bind(part="recorder", folder=str(self.files.folder))
        self.problem = ""
        """Why nothing is recorded at present; empty if recording works."""
        self.left_out = 0
        """Decisions that could not be recorded."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, snapshot: Snapshot, decision: Decision) -> None:
        """Queue a decision to be recorded; never blocks."""
        try:
            self._items.put_nowait((snapshot, decision))
        except queue.Full:
            self.left_out += 1

    def close(self) -> None:
        """Write what is queued, as far as `Times.close_recording` allows."""
        self._closing.set()
        try:
            self._items.put(None, timeout=self.times.close_recording)
        except queue.Full:
            return
        self._thread.join(self.times.close_recording)

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            began = time.monotonic()
            if began < self._not_before:
                self.left_out += 1
                continue
            try:
                self._record(*item, began)
            except Exception as error:  # noqa: BLE001 - any failure pauses only the recording
                self._failed(error)
            self._closing.wait(REST * (time.monotonic() - began))
        self.files.close()

    def _record(self, snapshot: Snapshot, decision: Decision, now: float) -> None:
        what = replace(snapshot, time=0.0), replace(decision, seconds=0.0)
        at, last = self._last.get(snapshot.partition, (0.0, None))
        if what == last and now - at < self.times.repeat_decision:
            return
        self.files.write(snapshot.partition, dump_record(snapshot, decision))
        self._last[snapshot.partition] = (now, what)
        if self.problem:
            self.problem = ""
            self._log.info("recording again", left_out=self.left_out)

    def _failed(self, error: Exception) -> None:
        self.left_out += 1
        pause = self.times.retry_recording
        self._not_before = time.monotonic() + pause
        self.files.close()
        if not self.problem:
            self._log.warning("not recording", error=str(error), again_in=pause)
        self.problem = f"decisions are not recorded in {self.files.folder}: {error}"


@asynccontextmanager
async def recording(
    folder: Path | None, limit: int, times: Times = Times()
) -> AsyncIterator[Recorder | None]:
    """Record while the block runs.

    Parameters
    ----------
    folder
        None records nothing.
    limit
        Bytes of all files in the folder.
    """
    if folder is None:
        yield None
        return
    recorder = Recorder(RecordingFiles(folder, limit=limit), times)
    recorder.start()
    try:
        yield recorder
    finally:
        await asyncio.to_thread(recorder.close)
