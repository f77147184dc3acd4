"""Writes the jobs' statuses, with few writes and short delays.

The status to write is kept for each job, so that several changes in a short time become one write.
Urgent statuses (an end, a job that can never start) are written at once. The others are deferred
for a short delay, in which more changes may follow: those with a new phase or reason come before
those that update one. They use two connections, each of which pauses for as long as its last
write took. Otherwise they would be the majority of all writes with thousands of jobs, and slow down
allocations and Pods on the same API server. Namespaces take turns.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from partita.fair_queue import FairQueue
from partita.jobs.job_reconciler import JobReconciler
from partita.jobs.job_status import keep_times, takes_back
from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, InvalidError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.kube.merge_patch import merge_diff
from partita.models import Phase, SharedGPUJob, SharedGPUJobStatus
from partita.pods.startup import UNDERWAY
from partita.scheduling.reasons import Reason, warns
from partita.store.state import State

__all__ = ["StatusWriter"]

_URGENT, _NEW, _UPDATED = range(3)
"""The ranks of statuses."""
_PASSING = {"", "Deleting", Reason.ENDING, Reason.SCHEDULING}
"""Reasons of waiting jobs without an Event: they say nothing that another Event does not."""
_STAYS_FINISHED = (
    "its spec was changed, and a finished job does not run again by itself: submit a job of "
    "another name, or retry a failed one by a new value of the annotation partita.dev/retry"
)
_DEFERRED = 2
"""Maximum number of concurrent writes of deferred statuses. An assumption: two keep one core of an
API server busy."""


@dataclass
class StatusWriter:
    """The only writer of SharedGPUJob statuses.

    Parameters
    ----------
    jobs
        Computes the statuses.
    on_written
        Called with each job as it was before its status was written, and with that status.
    concurrent
        Maximum number of concurrent writes.
    """

    kube: Kube
    state: State
    jobs: JobReconciler
    events: Events
    on_written: Callable[[SharedGPUJob, SharedGPUJobStatus], None] = lambda *_: None
    concurrent: int = 32

    def __post_init__(self) -> None:
        self._logged: dict[str, tuple[Phase | None, str]] = {}
        """Phase and reason in the last log line about each job."""
        self._wanted: dict[str, SharedGPUJobStatus] = {}
        self._due: dict[str, tuple[int, float]] = {}
        """The rank of the status of a job, and when it is due."""
        self._heap: list[tuple[float, str]] = []
        """When each status is due; an entry that differs from `_due` is outdated."""
        self._urgent = FairQueue[str]()
        """The jobs whose urgent statuses are due."""
        self._others = FairQueue[str]()
        """The jobs whose deferred statuses are due."""
        self._urgent_was_last = False
        self._writing: set[str] = set()
        self._deferred = 0
        """Connections for deferred statuses that are writing or pausing."""
        self._slots = asyncio.Semaphore(self.concurrent)
        self._changed = asyncio.Event()
        self._log = structlog.get_logger().bind(part="status")

    def update(self, uid: str) -> None:
        """Compute the status of a job, and schedule a write if it has changed."""
        found = self.jobs.status(uid, self.state.now())
        if found is None:
            if uid not in self.state.jobs:
                self.drop(uid)
            return
        status, within = found
        job = self.state.jobs[uid]
        line = status.phase, "" if status.reason in UNDERWAY else status.reason
        if line != self._logged.get(uid, (job.status.phase, job.status.reason)):
            self._logged[uid] = line
            self._log.info(
                "job",
                job=job.key,
                partition=job.spec.partition,
                phase=status.phase,
                reason=status.reason,
                message=status.message,
            )
        self.want(uid, status, within)

    def want(self, uid: str, status: SharedGPUJobStatus, within: float) -> None:
        """Schedule a status write within some seconds. Of several times the earliest applies."""
        at = asyncio.get_running_loop().time() + within
        self._wanted[uid] = status
        job = self.state.jobs.get(uid)
        known = (job.status.phase, job.status.reason) if job is not None else None
        rank = _NEW if known != (status.phase, status.reason) else _UPDATED
        rank = rank if within > 0 else _URGENT
        due = min(self._due.get(uid, (rank, at)), (rank, at))
        if due != self._due.get(uid):
            self._due[uid] = due
            heapq.heappush(self._heap, (due[1], uid))
            self._changed.set()

    def drop(self, uid: str) -> None:
        """Remove a job."""
        self._wanted.pop(uid, None)
        self._due.pop(uid, None)
        self._urgent.discard(uid)
        self._others.discard(uid)
        self._logged.pop(uid, None)

    async def run(self) -> None:
        """Write statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._update_changed())
            while True:
                # The slot comes first: the wanted status may change while none is free.
                await self._slots.acquire()
                uid, may_wait = await self._next()
                self._writing.add(uid)
                self._deferred += may_wait
                status = self._wanted.pop(uid)
                group.create_task(self._write_and_release(uid, status, may_wait=may_wait))

    async def _update_changed(self) -> None:
        """Update the statuses of reconciled jobs, and yield to the event loop after each."""
        queues = self.state.queues
        while True:
            for uid in await queues.job_statuses.get(1):
                try:
                    if uid not in queues.jobs.processing:  # otherwise it is reconciled later
                        self.update(uid)
                except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
                    self._log.exception("status not computed", uid=uid)
                    queues.jobs.add_after(uid, self.kube.times.retry_after)
                await self.kube.turns.next()

    async def _next(self) -> tuple[str, bool]:
        """Wait until a status is due; return the job's UID and whether the status was deferred."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            while self._heap and self._heap[0][0] <= loop.time():
                at, uid = heapq.heappop(self._heap)
                rank, due = self._due.get(uid, (_URGENT, None))
                if due == at and uid not in self._writing:  # else it is pushed after the write
                    job = self.state.jobs.get(uid)
                    if rank == _URGENT:
                        self._others.discard(uid)
                    queue = self._others if rank > _URGENT else self._urgent
                    queue.add(uid, job.metadata.namespace if job else "", rank)
            full = self._deferred >= _DEFERRED
            # In turns with the others, which a flood of urgent ones would delay for ever.
            order = [self._urgent, *([] if full else [self._others])]
            for queue in reversed(order) if self._urgent_was_last else order:
                while queue:
                    uid = queue.pop()
                    if (known := self._due.pop(uid, None)) is not None:
                        self._urgent_was_last = queue is self._urgent
                        return uid, known[0] > _URGENT
            wait = self._heap[0][0] - loop.time() if self._heap and not full else None
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _write_and_release(
        self, uid: str, status: SharedGPUJobStatus, *, may_wait: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._write(uid, status)
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("status not written", uid=uid)
            self.state.queues.jobs.add_after(uid, self.kube.times.retry_after)
        finally:
            self._writing.discard(uid)
            self._slots.release()
            if uid in self._due:
                heapq.heappush(self._heap, (self._due[uid][1], uid))
            if may_wait:
                loop.call_later(loop.time() - began, self._end_pause)
            self._changed.set()

    def _end_pause(self) -> None:
        self._deferred -= 1
        self._changed.set()

    async def _write(self, uid: str, status: SharedGPUJobStatus) -> None:
        job = self.state.jobs.get(uid)
        try:
            if job is None:
                return
            if takes_back(job.status, status):
                self._recompute(uid)
                return
            patch = merge_diff(job.status.dump(), keep_times(status, job.status).dump())
            if not patch:
                return
            meta = job.metadata
            body = await self.kube.patch(
                JOBS,
                meta.name,
                {"metadata": {"uid": uid}, "status": patch},
                namespace=meta.namespace,
                subresource="status",
                resource_version=meta.resource_version,
            )
            if (record := self.jobs.records.get(uid)) is not None:
                record.status_refused = False
            self.state.apply_job(body)
            self._report(job, status)
        except NotFoundError:
            self.drop(uid)
        except ConflictError:
            await self._read_again(job)
        except InvalidError as error:
            self._log.error("status refused", job=job.key if job else uid, error=str(error))
            record = self.jobs.records[uid]
            after = self.kube.times.retry_after if record.status_refused else 0.0
            record.status_refused = True
            self.state.queues.jobs.add_after(uid, after)
        except KubernetesError as error:
            # Or the lease was renewed late. Nothing else would request this status again.
            self._log.warning("status not written", job=job.key if job else uid, error=str(error))
            if uid not in self._wanted:
                self.want(uid, status, self.kube.times.retry_after)

    async def _read_again(self, job: SharedGPUJob | None) -> None:
        """Read a job that was written meanwhile, perhaps by another operator, and replan it."""
        if job is None:
            return
        meta = job.metadata
        try:
            self.state.apply_job(await self.kube.get(JOBS, meta.name, meta.namespace))
        except KubernetesError as error:
            self._log.warning("job not read again", job=job.key, error=str(error))
        self._recompute(meta.uid)

    def _recompute(self, uid: str) -> None:
        self.jobs.records[uid].written = None
        self.state.queues.jobs.add(uid)

    def _report(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        reason = status.reason if status.phase is Phase.QUEUED else ""
        if reason not in {*_PASSING, job.status.reason}:
            emit = self.events.warn if warns(reason) else self.events.inform
            emit(job, reason, status.message)
        capped = next((c for c in status.conditions if c.type == "PriorityCapped"), None)
        changed = job.status.effective_priority != status.effective_priority
        if capped is not None and capped.status == "True" and changed:
            self.events.warn(job, "PriorityCapped", capped.message)
        edited = job.status.observed_generation != status.observed_generation
        if edited and status.phase and status.phase.finished and job.status.phase is status.phase:
            # The admission policy partita-finished-jobs refuses most such changes beforehand.
            self.events.inform(job, "StaysFinished", _STAYS_FINISHED)
        try:
            self.on_written(job, status)
        except Exception:  # noqa: BLE001 - an observer must not end the writer
            self._log.exception("status not reported", job=job.key)
