"""The loop: reconciles changed jobs, and starts the cycles of their partitions.

store -> work queue -> plan -> cycle -> write. The statuses of jobs are written
concurrently, so that no job waits for them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from partita.claims.actions import Actions
from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.claim_statuses import ClaimStatuses
from partita.claims.preparation_retries import PreparationRetries
from partita.claims.release_marks import ReleaseMarks
from partita.jobs.job_reconciler import JobReconciler
from partita.jobs.job_statuses import StatusWriter
from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import GPUPartition, SharedGPUJob, SharedGPUJobStatus
from partita.process.cycle_writer import CycleWriter
from partita.process.partition_cycles import Cycles
from partita.process.reconcilers import Reconcilers
from partita.process.steady import steadily
from partita.scheduling.cycle_result import CycleResult
from partita.store.claim_view import ClaimView
from partita.store.finished_jobs import FinishedJob
from partita.store.state import State
from partita.store.views import PodView
from partita.store.work_queue import wait_for_keys

__all__ = ["Loop"]

_DELETIONS = 8
"""Maximum number of jobs whose time to live is over that are deleted at the same time. An
assumption: nobody waits for that, and after a start thousands would take all connections."""
DEBOUNCE = 0.01
"""Seconds in which changes are collected before they are processed together."""


@dataclass
class Loop:
    """Processes all jobs from submission to their end.

    Parameters
    ----------
    state
        The state that the informer maintains.
    on_decision
        Called with the result of each cycle in which a policy was called.
    past_shares
        Returns the mean dominant share that each namespace of a partition had lately.
    on_status
        Called with each job as it was before its status was written, and with that status.
    on_claim
        Called with the UID of each claim that is reconciled, and the time.
    """

    kube: Kube
    state: State
    events: Events
    on_decision: Callable[[CycleResult], None] = lambda _: None
    past_shares: Callable[[GPUPartition, datetime], Mapping[str, float]] = lambda *_: {}
    on_status: Callable[[SharedGPUJob, SharedGPUJobStatus], None] = lambda *_: None
    on_claim: Callable[[str, datetime], None] = lambda *_: None

    def __post_init__(self) -> None:
        kube, state, events = self.kube, self.state, self.events
        self._queue = state.queues.jobs
        self.jobs = JobReconciler(state, kube.times)
        self.claims = ClaimReconciler(state, self.jobs.demand, kube.times, self.on_claim)
        self._tasks = asyncio.TaskGroup()
        self.reconcilers = Reconcilers(self.jobs, self.claims)
        spawn = self._tasks.create_task
        self._writer = CycleWriter(kube, state, self.reconcilers, events, spawn)
        self._claim_statuses = ClaimStatuses(kube, state, self.claims, events)
        self._marks = ReleaseMarks(kube, state, self.jobs.demand, spawn=self._spawn)
        self._statuses = StatusWriter(kube, state, self.jobs, events, on_written=self.on_status)
        self._cycles = Cycles(
            state,
            self.reconcilers,
            self._writer,
            tasks=self._tasks,
            on_decision=self.on_decision,
            past_shares=self.past_shares,
            times=kube.times,
        )
        self.runner = self._cycles.runner
        self._retries = PreparationRetries(kube, state)
        self._deleting: set[str] = set()
        self._deletions = asyncio.Semaphore(_DELETIONS)
        self._log = structlog.get_logger().bind(part="loop")

    async def run(self) -> None:
        """Process changes until cancelled."""
        statuses, claims, retries = self._statuses, self._claim_statuses, self._retries
        async with self._tasks:
            for work in (statuses.run, claims.run, retries.run, self._process):
                self._tasks.create_task(steadily(work, self.kube.times))

    async def _process(self) -> None:
        queues = self.state.queues
        while True:
            self._queue.add(*self.jobs.demand.renew(queues.applications.take()))
            self._queue.add(*self._resized(queues.capacities.take()))
            await self._reconcile()
            self._marks.start()
            self._cycles.explain_behind()
            for name in queues.partitions.take():
                self._cycles.start(name)
            if self._queue.due_in() == 0.0:
                continue  # more jobs wait to be reconciled
            await wait_for_keys(
                self._queue,
                queues.applications,
                queues.partitions,
                queues.capacities,
                times=self.kube.times,
            )
            await asyncio.sleep(DEBOUNCE)

    def _resized(self, partitions: Iterable[str]) -> set[str]:
        """Return what may fit now: jobs and claims of those whose largest GPU has changed."""
        resized = filter(self.jobs.refresh_largest, partitions)
        return {uid for name in resized for uid in self.state.users_in(name)}

    async def _reconcile(self) -> None:
        """Reconcile jobs and claims for a while, and yield to the event loop after each."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.kube.times.turn
        while taken := self._queue.take(1):
            (uid,), now = taken, self.state.now()
            try:
                self._carry_out(uid, self.reconcilers.of(uid).actions(uid, now), now)
            except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
                self._log.exception("job not reconciled", uid=uid)
                self._queue.add_after(uid, self.kube.times.retry_after)
            self.state.queues.job_statuses.add(uid)
            await self.kube.turns.next()
            if loop.time() >= until:
                return

    def _carry_out(self, uid: str, actions: Actions, now: datetime) -> None:
        if actions.writes:
            self._queue.start(uid)
            self._spawn(self._writer.claims.carry_out(uid))
        for event in actions.events:
            self.events.emit(event)
        for one in actions.delete:
            self._delete(one, uid, actions.grace)
        if actions.read_missing:
            self._queue.start(uid)
            self._spawn(self._writer.read_missing(uid))
        if actions.read is not None:
            self._queue.start(uid)
            self._spawn(self._read_job(actions.read))
        if actions.expired is not None:
            self._spawn(self._delete_job(actions.expired))
        if actions.wake is not None:
            self._queue.add_after(uid, (actions.wake - now).total_seconds())

    async def _read_job(self, job: FinishedJob) -> None:
        after = self.kube.times.retry_after
        try:
            body = await self.kube.get(JOBS, job.name, job.namespace)
            if body["metadata"]["uid"] == job.uid:
                self.state.apply_job(body)
                after = 0.0
        except KubernetesError as error:
            self._log.warning("job not read", job=job.key, error=str(error))
        finally:
            self._queue.done(job.uid, after)

    def _delete(self, one: PodView | ClaimView, job: str, grace: int | None = None) -> None:
        """Delete a Pod or a claim of a job, unless that is in progress."""

        async def delete() -> None:
            try:
                if not await self._writer.attempts.delete(one, grace):
                    self._queue.add_after(job, self.kube.times.retry_after)
            finally:
                self._deleting.discard(one.uid)

        if one.uid not in self._deleting:
            self._deleting.add(one.uid)
            self._spawn(delete())

    async def _delete_job(self, job: FinishedJob) -> None:
        self._log.info("deleting job: its time to live is over", job=job.key)
        try:
            async with self._deletions:
                await self.kube.delete(JOBS, job.name, job.namespace, uid=job.uid)
        except (NotFoundError, ConflictError):
            pass
        except KubernetesError as error:
            self._log.warning("job not deleted", job=job.key, error=str(error))
            self._queue.add_after(job.uid, self.kube.times.retry_after)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(self._guarded(work))
        task.add_done_callback(lambda _: work.close())  # it never began if the loop ended at once

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Log an exception, so that a bug that affects one job does not stop the others."""
        try:
            await work
        except Exception:  # noqa: BLE001 - see the docstring
            self._log.exception("work failed")
