"""Records the decisions of all partitions for `partita replay`, beside the operator's work.

A thread of its own writes; the loop only hands over what is frozen anyway. What the thread cannot
keep up with is left out, and a disk that is full ends nothing but the recording, for a while.
"""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from partita.operator.recording_files import RecordingFiles
from partita_policies.recordings import Decision, dump_record
from partita_policies.types import Snapshot

__all__ = ["Recorder", "recording"]

WAITING = 64
"""Decisions that may wait to be written."""
REST = 9.0
"""For each second of writing so many of rest: the thread costs a tenth of a core at most."""
RETRY_AFTER = 30.0
"""Seconds without a try after a failed one."""
AGAIN_AFTER = 60.0
"""Seconds until a decision is written again that is the same as the one before."""
CLOSING = 2.0
"""Seconds for which the operator waits at its end for what is still to be written."""

_Item = tuple[Snapshot, Decision]


class Recorder:
    """Takes decisions and has them written."""

    def __init__(self, files: RecordingFiles) -> None:
        self._files = files
        self._items: queue.Queue[_Item | None] = queue.Queue(WAITING)
        self._last: dict[str, tuple[float, _Item]] = {}
        self._not_before = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._log = structlog.get_logger().bind(part="recorder", folder=str(files.folder))
        self.problem = ""
        """Why nothing is recorded at present; empty when all is well."""
        self.left_out = 0
        """Decisions that could not be recorded."""

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def offer(self, snapshot: Snapshot, decision: Decision) -> None:
        """Have a decision recorded; never waits."""
        try:
            self._items.put_nowait((snapshot, decision))
        except queue.Full:
            self.left_out += 1

    def close(self) -> None:
        """Write what is left, as far as `CLOSING` allows."""
        self._closing.set()
        try:
            self._items.put(None, timeout=CLOSING)
        except queue.Full:
            return
        self._thread.join(CLOSING)

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            began = time.monotonic()
            if began < self._not_before:
                self.left_out += 1
                continue
            try:
                self._record(*item, began)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the recording alone
                self._failed(error)
            self._closing.wait(REST * (time.monotonic() - began))
        self._files.close()

    def _record(self, snapshot: Snapshot, decision: Decision, now: float) -> None:
        what = _lasting(snapshot), replace(decision, seconds=0.0)
        at, last = self._last.get(snapshot.partition, (0.0, None))
        if what == last and now - at < AGAIN_AFTER:
            return
        self._files.write(snapshot.partition, dump_record(snapshot, decision))
        self._last[snapshot.partition] = (now, what)
        if self.problem:
            self.problem = ""
            self._log.info("recording again", left_out=self.left_out)

    def _failed(self, error: Exception) -> None:
        self.left_out += 1
        self._not_before = time.monotonic() + RETRY_AFTER
        self._files.close()
        if not self.problem:
            self._log.warning("not recording", error=str(error), again_in=RETRY_AFTER)
        self.problem = f"decisions are not recorded in {self._files.folder}: {error}"


def _lasting(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without what changes by time alone."""
    gpus = tuple(
        replace(
            gpu, running=tuple(replace(running_job, elapsed=0.0) for running_job in gpu.running)
        )
        for gpu in snapshot.gpus
    )
    return replace(snapshot, time=0.0, gpus=gpus)


@asynccontextmanager
async def recording(folder: Path | None, limit: int) -> AsyncIterator[Recorder | None]:
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
    recorder = Recorder(RecordingFiles(folder, limit=limit))
    recorder.start()
    try:
        yield recorder
    finally:
        await asyncio.to_thread(recorder.close)
