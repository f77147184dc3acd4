"""The loop: looks at what changed, has cycles decide per partition, and statuses written.

dirty -> short debounce -> look at each changed job -> one cycle per changed partition -> commit.
What jobs are told comes after that: it keeps none from its start.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from partita.commit.committer import Committer
from partita.commit.job_statuses import StatusWriter
from partita.decide.cycle_result import CycleResult
from partita.decide.policy_runner import PolicyRunner
from partita.decide.snapshot import gpus_of
from partita.informer.state import State
from partita.informer.views import PodView
from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.operator.partition_cycles import Cycles
from partita.pods.startup import UNDERWAY
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.lifecycle import Plan
from partita.reconcile.profile_updates import renew_requests

__all__ = ["Loop"]

DEBOUNCE = 0.01
"""Seconds in which changes that come together are taken together."""
TURN_SECONDS = 0.02
"""Most seconds that are spent on jobs without a break: cycles go on meanwhile, the Lease is
renewed, and connections are kept."""
RETRY_AFTER = timedelta(seconds=2)
"""Before a job is looked at again after a write for it failed."""
LOOK_AT_CLOCK = 10.0
"""Most seconds between two looks at the clock: it may have been set back meanwhile."""


class Loop:
    """Drives all jobs from submission to their end.

    Parameters
    ----------
    state
        What the watches feed.
    on_partition
        Told of each partition whose jobs or GPUs changed, and after each of its cycles.
    on_decision
        Told of each cycle in which a policy was asked.
    on_status
        Told of each job's status once it is written, and of the job as it was before.
    now
        The clock.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        events: Events,
        *,
        on_partition: Callable[[str], None] = lambda _: None,
        on_decision: Callable[[CycleResult], None] = lambda _: None,
        on_status: Callable[[SharedGPUJob, SharedGPUJobStatus], None] = lambda *_: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._on_partition = on_partition
        self._kube = kube
        self._state = state
        self._events = events
        self._now = now
        self.jobs = JobReconciler(state)
        self._tasks = asyncio.TaskGroup()
        self._committer = Committer(
            kube, state, self.jobs, events, now=now, spawn=self._tasks.create_task
        )
        self._statuses = StatusWriter(
            kube, state, self._status_refused, self._status_outdated, self._status_written
        )
        self._on_status = on_status
        self._deleting: set[str] = set()
        self._untold: set[str] = set()
        """Jobs that were looked at and whose status was not compared with that yet."""
        self._timers: list[tuple[datetime, str]] = []
        self._timer_of: dict[str, datetime] = {}
        self._looked_at = now()
        self._logged: dict[str, tuple[Phase | None, str]] = {}
        """Phase and reason in the last line about each job."""
        self._log = structlog.get_logger().bind(part="loop")
        self._begun = asyncio.Event()
        self._cycles = Cycles(
            state,
            self.jobs,
            self._committer,
            events,
            self._tasks,
            on_cycle=on_partition,
            on_decision=on_decision,
            on_explained=self._tell_later,
            now=now,
        )

    def runner(self, partition: str) -> PolicyRunner | None:
        """Return a partition's policies, for its status."""
        return self._cycles.runner(partition)

    async def run(self) -> None:
        """Work for ever."""
        async with self._tasks:
            self._tasks.create_task(self._statuses.run())
            while True:
                await self._pass()
                if not self._begun.is_set() and self._can_decide():
                    self._begun.set()
                self._tell_some()
                await self._wait()

    async def begun(self) -> None:
        """Wait until what was there at the start has been decided on, and is allocated.

        Nothing can be decided of jobs that wait before a first GPU is ready.
        """
        await self._begun.wait()
        await self._cycles.rest()

    def _can_decide(self) -> bool:
        now, partitions = self._now(), self._state.partitions.values()
        return not any(self.jobs.waiting.values()) or any(
            gpus_of(partition, self._state, now) for partition in partitions
        )

    async def _pass(self) -> None:
        """Look at what changed, and start the cycles that this asks for."""
        uids = self._state.dirty.take_jobs() | self._due(self._now())
        changed = self._state.dirty.take_applications()
        uids |= renew_requests(changed, self._state, self.jobs.waiting)
        partitions, glances = self._state.dirty.take_partitions()
        for name in self._state.dirty.take_freed():
            self._cycles.start_later(name)
        self._tell_of(partitions | glances)  # its GPUs are carved while its jobs are looked at
        await self._look_at_all(uids | self._resized(partitions))
        more, more_glances = self._state.dirty.take_partitions()
        self._tell_of(more | more_glances)
        await self._look_at_all(self._resized(more))
        for name in partitions | more:
            self._cycles.start(name)

    def _tell_of(self, partitions: Iterable[str]) -> None:
        for name in partitions:
            self._on_partition(name)

    async def _look_at_all(self, uids: set[str]) -> None:
        """Look at these jobs, and let others have their turn now and then."""
        loop = asyncio.get_running_loop()
        now, began = self._now(), loop.time()
        for uid in uids:
            self._do(self._look_at, uid, now)
            if loop.time() - began >= TURN_SECONDS:
                await asyncio.sleep(0)
                now, began = self._now(), loop.time()

    def _tell_some(self) -> None:
        """Have some statuses written; cycles go first: what is told keeps no job from its start."""
        loop = asyncio.get_running_loop()
        now, began = self._now(), loop.time()
        while self._untold:
            self._do(self._wish_status, self._untold.pop(), now)
            if loop.time() - began >= TURN_SECONDS:
                return

    def _do(self, work: Callable[[str, datetime], None], uid: str, now: datetime) -> None:
        if uid in self._committer.busy:
            return  # it is looked at once it is written
        try:
            work(uid, now)
        except Exception:  # noqa: BLE001 - a fault of ours with one job; the others go on
            self._log.exception("job not planned", uid=uid)
            self._later(uid)

    async def _wait(self) -> None:
        if self._untold:
            await asyncio.sleep(0)
            return
        timeout = None
        if self._timers:
            wait = (self._timers[0][0] - self._now()).total_seconds()
            timeout = min(max(0.0, wait), LOOK_AT_CLOCK)
        try:
            async with asyncio.timeout(timeout):
                await self._state.dirty.event.wait()
        except TimeoutError:
            return
        await asyncio.sleep(DEBOUNCE)

    # Single jobs.

    def _due(self, now: datetime) -> set[str]:
        due = set()
        # Once the clock was set back, what is due when is to be reckoned anew for all.
        was_set_back, self._looked_at = now < self._looked_at, now
        while self._timers and (was_set_back or self._timers[0][0] <= now):
            _, uid = heapq.heappop(self._timers)
            self._timer_of.pop(uid, None)
            due.add(uid)
        return due

    def _resized(self, partitions: Iterable[str]) -> set[str]:
        """Return the jobs of partitions whose largest GPU is another now: what fits changed."""
        resized = {name for name in partitions if self.jobs.refresh_largest(name)}
        return {job.metadata.uid for name in resized for job in self._state.jobs_of(name)}

    def _look_at(self, uid: str, now: datetime) -> None:
        made = self.jobs.look(uid, now)
        if made is None:
            self._statuses.drop(uid)
            self._logged.pop(uid, None)
            return
        self._tell_ends(self._state.jobs[uid], made)
        if made.create_pod is not None and made.reason:
            self._wish_status(uid, now)  # it is busy from now on, perhaps for long
        self._act(uid, made)
        self._set_timer(uid)
        self._untold.add(uid)

    def _tell_later(self, uids: Iterable[str]) -> None:
        """Have the statuses of jobs whose cycle said why they wait looked at again."""
        self._untold.update(uids)
        self._state.dirty.event.set()

    def _tell_ends(self, job: SharedGPUJob, made: Plan) -> None:
        """Tell of attempts that did not end well, once: before that is written down."""
        known = {a.number for a in job.status.attempts if a.outcome is not None}
        for attempt in made.attempts:
            outcome = attempt.outcome
            if attempt.number in known or outcome in {None, Outcome.SUCCEEDED}:
                continue
            said = f"attempt {attempt.number} on {attempt.node or 'no node'}: {attempt.message}"
            self._events.warn(job, str(outcome), said)

    def _act(self, uid: str, made: Plan) -> None:
        job = self._state.jobs[uid]
        for pod in made.delete_pods:
            if pod.uid not in self._deleting:
                self._deleting.add(pod.uid)
                self._log.info("ending pod", job=job.key, pod=pod.name)
                self._spawn(self._delete_pod(pod, 0 if made.delete_now else made.grace))
        if (attempt := made.create_pod or made.find_pod) is not None:
            self._committer.busy.add(uid)
            self._spawn(self._committer.finish(job, attempt))
        if made.expire:
            self._log.info("deleting job: its time to live is over", job=job.key)
            self._spawn(self._delete_job(job))

    async def _delete_pod(self, pod: PodView, grace: int | None) -> None:
        try:
            await self._committer.pods.delete(pod, grace=grace)
        finally:
            self._deleting.discard(pod.uid)

    async def _delete_job(self, job: SharedGPUJob) -> None:
        meta = job.metadata
        try:
            await self._kube.delete(JOBS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            pass
        except KubernetesError as error:
            self._log.warning("job not deleted", job=job.key, error=str(error))
            self._later(meta.uid)

    def _wish_status(self, uid: str, now: datetime) -> None:
        wish = self.jobs.status(uid, now)
        if wish is None:
            return
        status, within = wish
        job = self._state.jobs[uid]
        stands = status.phase, "" if status.reason in UNDERWAY else status.reason
        if stands != self._logged.get(uid, (job.status.phase, job.status.reason)):
            self._logged[uid] = stands
            self._log.info(
                "job",
                job=job.key,
                partition=job.spec.partition,
                phase=status.phase,
                reason=status.reason,
                message=status.message,
            )
        self._statuses.want(uid, status, within)

    def _status_refused(self, uid: str) -> None:
        self.jobs.status_refused(uid)
        self._state.dirty.jobs(uid)

    def _status_outdated(self, uid: str) -> None:
        self.jobs.status_outdated(uid)
        self._state.dirty.jobs(uid)

    def _status_written(self, job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        capped = next((c for c in status.conditions if c.type == "PriorityCapped"), None)
        told = job.status.effective_priority == status.effective_priority
        if capped is not None and capped.status == "True" and not told:
            self._events.warn(job, "PriorityCapped", capped.message)
        self._on_status(job, status)

    def _set_timer(self, uid: str) -> None:
        at = self.jobs.wake_at(uid, self._now())
        if at is not None and at != self._timer_of.get(uid):
            self._timer_of[uid] = at
            heapq.heappush(self._timers, (at, uid))

    def _later(self, uid: str) -> None:
        heapq.heappush(self._timers, (self._now() + RETRY_AFTER, uid))
        self._state.dirty.event.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Keep a fault of ours with one job from ending all others."""
        try:
            await work
        except Exception:  # noqa: BLE001 - as its docstring says
            self._log.exception("work failed")
