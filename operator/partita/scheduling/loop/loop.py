"""The loop: looks at what changed, decides per partition, and has it written.

dirty -> short debounce -> look at each changed job -> one cycle per changed partition -> commit.
Each partition's cycles run one after another in a task of their own, and all writes to its
ledgers are made there; so a policy that hangs holds up nobody else's jobs, and no two of our
own writes ever race for one GPU.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.models.partition import PolicySpec
from partita.scheduling.cycle import CycleResult, Memory, placements_of, run_cycle
from partita.scheduling.jobs import Jobs
from partita.scheduling.ledger import LedgerChanges
from partita.scheduling.lifecycle import Plan
from partita.scheduling.loop.commit import Committer
from partita.scheduling.loop.statuses import StatusWriter
from partita.scheduling.reasons import Reason
from partita.scheduling.reservations import Aging
from partita.scheduling.runner import PolicyRunner
from partita.scheduling.state import State
from partita.scheduling.views import PodView

__all__ = ["Loop"]

DEBOUNCE = 0.01
"""Seconds in which changes that come together are taken together."""
LOOK_SECONDS = 0.2
"""Most seconds in which jobs are looked at without a break: the Lease is to be renewed meanwhile,
and connections to be kept."""
RETRY_AFTER = timedelta(seconds=2)
"""Before a job is looked at again after a write for it failed."""
ASK_AGAIN = 1.0
"""Seconds until a policy is asked again that started nothing though something would fit."""
LOOK_AT_CLOCK = 10.0
"""Most seconds between two looks at the clock: it may have been set back meanwhile."""
CYCLE_REST = 0.5
"""Most seconds between two cycles of a partition; else as long as the first took."""
FAILED_CYCLE_PAUSE = 1.0
"""Seconds after a cycle that broke by a fault of our own, so that it does not spin."""


@dataclass(slots=True)
class _Partition:
    """What the loop keeps of one partition."""

    memory: Memory
    task: asyncio.Task[None] | None = None
    again: bool = False
    ask_again: asyncio.TimerHandle | None = None
    shadows: asyncio.Task[None] | None = None


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
        self._on_decision = on_decision
        self._kube = kube
        self._state = state
        self._events = events
        self._now = now
        self.jobs = Jobs(state)
        self._committer = Committer(kube, state, self.jobs, events, now=now)
        self._statuses = StatusWriter(
            kube, state, self._status_refused, self._status_outdated, on_status
        )
        self._partitions: dict[str, _Partition] = {}
        self._deleting: set[str] = set()
        self._timers: list[tuple[datetime, str]] = []
        self._timer_of: dict[str, datetime] = {}
        self._looked_at = now()
        self._logged: dict[str, tuple[Phase | None, str]] = {}
        """Phase and reason in the last line about each job."""
        self._log = structlog.get_logger().bind(part="loop")
        self._tasks = asyncio.TaskGroup()

    def runner(self, partition: str) -> PolicyRunner | None:
        """Return a partition's policies, for its status."""
        kept = self._partitions.get(partition)
        return kept.memory.runner if kept else None

    async def run(self) -> None:
        """Work for ever."""
        async with self._tasks:
            self._tasks.create_task(self._statuses.run())
            while True:
                await self._wait()
                await self._pass()

    async def _pass(self) -> None:
        """Look at what changed, and start the cycles that this asks for."""
        uids = self._state.dirty.take_jobs() | self._due(self._now())
        partitions, glances = self._state.dirty.take_partitions()
        await self._look_at_all(uids | self._resized(partitions))
        more, more_glances = self._state.dirty.take_partitions()
        await self._look_at_all(self._resized(more))
        for name in partitions | more | glances | more_glances:
            self._on_partition(name)
        for name in partitions | more:
            self._start_cycle(name)

    async def _look_at_all(self, uids: set[str]) -> None:
        """Look at these jobs, and let others have their turn now and then."""
        loop = asyncio.get_running_loop()
        now, began = self._now(), loop.time()
        for uid in uids:
            if uid in self._committer.busy:
                continue  # it is looked at once it is written
            try:
                self._look_at(uid, now)
            except Exception:  # noqa: BLE001 - a fault of ours with one job; the others go on
                self._log.exception("job not planned", uid=uid)
                self._later(uid)
            if loop.time() - began >= LOOK_SECONDS:
                await asyncio.sleep(0)
                now, began = self._now(), loop.time()

    async def _wait(self) -> None:
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
        self._act(uid, made)
        self._wish_status(uid, now)
        self._set_timer(uid)

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
                self._spawn(self._delete_pod(pod, now=made.delete_now))
        if made.create_pod is not None:
            self._committer.busy.add(uid)
            self._spawn(self._committer.finish(job, made.create_pod))
        if made.expire:
            self._log.info("deleting job: its time to live is over", job=job.key)
            self._spawn(self._delete_job(job))

    async def _delete_pod(self, pod: PodView, *, now: bool) -> None:
        try:
            await self._committer.pods.delete(pod, now=now)
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
        stands = status.phase, status.reason
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

    def _set_timer(self, uid: str) -> None:
        at = self.jobs.wake_at(uid)
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

    # Partitions.

    def _start_cycle(self, name: str) -> None:
        partition = self._state.partitions.get(name)
        kept = self._partitions.get(name)
        if kept is None:
            spec = partition.spec.policy if partition else PolicySpec()
            jobs = self._state.jobs_of(name)
            counted = {job.metadata.uid: job.status.bypasses for job in jobs if job.status.bypasses}
            memory = Memory(PolicyRunner(spec), Aging(counted))
            kept = self._partitions[name] = _Partition(memory)
        if kept.task is not None and not kept.task.done():
            kept.again = True
            return
        kept.task = self._tasks.create_task(self._cycles(name, kept))

    async def _cycles(self, name: str, kept: _Partition) -> None:
        loop = asyncio.get_running_loop()
        while True:
            kept.again = False
            began = loop.time()
            try:
                await self._cycle(name, kept)
            except Exception:  # noqa: BLE001 - a fault of ours; the next change tries again
                self._log.exception("cycle failed", partition=name)
                await asyncio.sleep(FAILED_CYCLE_PAUSE)
                self._state.dirty.partitions(name)
            self._on_partition(name)
            # The slower the API server takes the bookings, the more of them go into one write.
            await asyncio.sleep(min(loop.time() - began, CYCLE_REST))
            if not kept.again:
                return

    def _ask_again(self, name: str, kept: _Partition) -> None:
        """Ask a policy that holds back a job which would fit again, though nothing happens."""
        if kept.ask_again is None:
            loop = asyncio.get_running_loop()

            def ask() -> None:
                kept.ask_again = None
                self._state.dirty.partitions(name)

            kept.ask_again = loop.call_later(ASK_AGAIN, ask)

    async def _cycle(self, name: str, kept: _Partition) -> None:
        partition = self._state.partitions.get(name)
        now = self._now()
        changes = LedgerChanges()
        result = CycleResult()
        released = {
            server.metadata.name: set(self.jobs.releases[server.metadata.name])
            for server in self._state.servers_of(name)
            if self.jobs.releases[server.metadata.name]
        }
        for server, uids in released.items():
            for uid in uids:
                changes.release(uid, [server])
        if partition is not None and not partition.metadata.deletion_timestamp:
            if kept.memory.runner.spec != partition.spec.policy:
                self._log.info("policy", partition=name, policy=partition.spec.policy.name)
                kept.memory.runner = PolicyRunner(partition.spec.policy)
            waiting = self.jobs.waiting[name]
            if waiting:
                result = await run_cycle(
                    partition,
                    self._state,
                    waiting=waiting,
                    released=released,
                    memory=kept.memory,
                    now=now,
                )
            if result.snapshot is not None:
                self._on_decision(result)
            self._tell_preempted(result)
            await self._committer.commit(partition, result, changes)
            self._explain(result)
            if any(why.reason is Reason.POLICY_WAITS for why in result.why.values()):
                self._ask_again(name, kept)
            self._run_shadows(kept, result)
        elif changes.by_server:
            await self._committer.commit(None, result, changes)

    def _tell_preempted(self, result: CycleResult) -> None:
        for victim, job in result.preempted:
            self._log.info("preempting", job=victim.job, for_job=job.name)
            self.jobs.end(
                victim.job, Outcome.PREEMPTED, f"{job.name} of priority {job.priority} needs room"
            )
            self._state.dirty.jobs(victim.job)
            found = self._state.jobs.get(victim.job)
            if found is not None:
                self._events.inform(
                    found, "Preempted", f"it is queued again: {job.name} has a higher priority"
                )

    def _explain(self, result: CycleResult) -> None:
        now = self._now()
        placed = {job.id for job, _ in result.placed}
        position = 0
        for job in result.order:
            if job.id not in placed:
                position += 1
                why = result.why[job.id]
                if self.jobs.explain(job.id, why, now, position=position, bypasses=job.bypasses):
                    self._wish_status(job.id, now)
        for uid in result.why.keys() - {job.id for job in result.order}:
            if self.jobs.explain(uid, result.why[uid], now):
                self._wish_status(uid, now)

    def _run_shadows(self, kept: _Partition, result: CycleResult) -> None:
        if result.snapshot is None or not kept.memory.runner.shadow_counts:
            return
        if kept.shadows is None or kept.shadows.done():
            work = kept.memory.runner.run_shadows(result.snapshot, placements_of(result))
            kept.shadows = self._tasks.create_task(work)
