"""Writes the jobs' statuses: few writes, soon enough.

What is wanted is kept by job, so several changes within a moment become one write. Urgent ones
(a start, an end, a job that can never start) go at once and, where there are more than can be
written, before all others, which wait for a short delay in which more may come. Those others have
two connections, each of which rests as long as its last write took: under thousands of jobs they
would be most of all writes, and allocations and Pods wait for the same API server. The slower it
answers, the fewer they are.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from partita.informer.state import State
from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, InvalidError, KubernetesError, NotFoundError
from partita.models import SharedGPUJob, SharedGPUJobStatus
from partita.reconcile.job_status import merge_diff, takes_back

__all__ = ["StatusWriter"]

_CONCURRENT = 32
"""Writes under way at a time."""
_LEISURELY = 2
"""Of these, those that may wait. An assumption: one core of an API server is kept busy by two."""
_RETRY_AFTER = 2.0
"""Seconds before a status that could not be written is tried again."""


class StatusWriter:
    """The one writer of SharedGPUJob statuses.

    Parameters
    ----------
    on_refused
        Told the UID of a job whose status the API server will never take.
    on_outdated
        Told the UID of a job that was another by now: its status is to be decided anew.
    on_written
        Told of each status once it is written, and of the job as it was before.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        on_refused: Callable[[str], None],
        on_outdated: Callable[[str], None],
        on_written: Callable[[SharedGPUJob, SharedGPUJobStatus], None] = lambda *_: None,
    ) -> None:
        self._kube = kube
        self._state = state
        self._on_refused = on_refused
        self._on_outdated = on_outdated
        self._on_written = on_written
        self._wanted: dict[str, SharedGPUJobStatus] = {}
        self._due: dict[str, tuple[bool, float]] = {}
        """Whether it may wait, and until when."""
        self._heap: list[tuple[tuple[bool, float], str]] = []
        self._writing: set[str] = set()
        self._leisurely = 0
        """Connections for those that may wait which write or rest."""
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._changed = asyncio.Event()
        self._log = structlog.get_logger().bind(part="status")

    def want(self, uid: str, status: SharedGPUJobStatus, within: float) -> None:
        """Have a status written within so many seconds; an earlier time that stands is kept."""
        now = asyncio.get_running_loop().time()
        self._wanted[uid] = status
        due = min(self._due.get(uid, (True, now + within)), (within > 0, now + within))
        if due != self._due.get(uid):
            self._due[uid] = due
            heapq.heappush(self._heap, (due, uid))
            self._changed.set()

    def drop(self, uid: str) -> None:
        """Forget a job."""
        self._wanted.pop(uid, None)
        self._due.pop(uid, None)

    async def run(self) -> None:
        """Write for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                # First: what is wanted may change while there is no slot.
                await self._slots.acquire()
                uid, may_wait = await self._next()
                self._writing.add(uid)
                self._leisurely += may_wait
                work = self._write(uid, self._wanted.pop(uid))
                group.create_task(self._take_turn(uid, work, may_wait=may_wait))

    async def _next(self) -> tuple[str, bool]:
        """Wait until a status is due; return whose it is, and whether it could have waited."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            full = self._leisurely >= _LEISURELY
            while self._heap and self._heap[0][0][1] <= loop.time():
                if full and self._heap[0][0][0]:
                    break
                due, uid = heapq.heappop(self._heap)
                if self._due.get(uid) != due or uid in self._writing:
                    continue  # an older wish, or one whose turn comes after that write
                del self._due[uid]
                return uid, due[0]
            wait = self._heap[0][0][1] - loop.time() if self._heap and not full else None
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _take_turn(
        self, uid: str, work: Coroutine[Any, Any, None], *, may_wait: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await work
        finally:
            self._writing.discard(uid)
            self._slots.release()
            if uid in self._due:
                heapq.heappush(self._heap, (self._due[uid], uid))
            if may_wait:
                loop.call_later(loop.time() - began, self._rested)
            self._changed.set()

    def _rested(self) -> None:
        self._leisurely -= 1
        self._changed.set()

    async def _write(self, uid: str, status: SharedGPUJobStatus) -> None:
        job = self._state.jobs.get(uid)
        try:
            if job is None:
                return
            if takes_back(job.status, status):
                self._on_outdated(uid)
                return
            patch = merge_diff(job.status.dump(), status.dump())
            if not patch:
                return
            meta = job.metadata
            body = await self._kube.patch(
                JOBS,
                meta.name,
                {"metadata": {"uid": uid}, "status": patch},
                namespace=meta.namespace,
                subresource="status",
                resource_version=meta.resource_version,
            )
            self._state.apply_job(body)
            self._tell(job, status)
        except NotFoundError:
            self.drop(uid)
        except ConflictError:
            await self._read_again(job)
        except InvalidError as error:
            self._log.error("status refused", job=job.key if job else uid, error=str(error))
            self._on_refused(uid)
        except KubernetesError as error:
            # Or the lease was renewed late: nobody would ask for this status once more.
            self._log.warning("status not written", job=job.key if job else uid, error=str(error))
            if uid not in self._wanted:
                self.want(uid, status, _RETRY_AFTER)

    async def _read_again(self, job: SharedGPUJob | None) -> None:
        """Somebody wrote in between, perhaps another operator: what he says decides anew."""
        if job is None:
            return
        meta = job.metadata
        try:
            self._state.apply_job(await self._kube.get(JOBS, meta.name, meta.namespace))
        except KubernetesError as error:
            self._log.warning("job not read again", job=job.key, error=str(error))
        self._on_outdated(meta.uid)

    def _tell(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        try:
            self._on_written(job, status)
        except Exception:  # noqa: BLE001 - who only looks on must not end who works
            self._log.exception("not told of a status", job=job.key)
