"""The loop: looks at what changed, decides per partition, and has it written.

dirty -> short debounce -> look at each changed job -> one cycle per changed partition -> commit.
Each partition's cycles run one after another in a task of their own, and all writes to its
ledgers are made there; so a policy that hangs holds up nobody else's jobs, and no two of our
own writes ever race for one GPU.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from partita.constants import MPS_MAX_CLIENTS
from partita.kube.client import JOBS, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.kube.ledger import write_ledger
from partita.kube.pods import Created, JobPods
from partita.kube.statuses import StatusWriter
from partita.models import Allocation, GPUPartition, GPUServer, Outcome, SharedGPUJob, SharingMode
from partita.models.partition import PolicySpec
from partita.pods.grant import Grant
from partita.scheduling.cycle import CycleResult, Memory, placements_of, run_cycle
from partita.scheduling.jobs import Jobs, Refusal
from partita.scheduling.ledger import LedgerChanges, ServerChange, allocations_after, overbooked
from partita.scheduling.lifecycle import Plan
from partita.scheduling.request import bookable
from partita.scheduling.runner import PolicyRunner
from partita.scheduling.snapshot import server_state
from partita.scheduling.state import State
from partita_policies.types import GPU, Job

__all__ = ["Loop"]

DEBOUNCE = 0.01
"""Seconds in which changes that come together are taken together."""
RETRY_AFTER = timedelta(seconds=2)
"""Before a Pod that could not be made is tried again."""
FAILED_CYCLE_PAUSE = 1.0
"""Seconds after a cycle that broke by a fault of our own, so that it does not spin."""


@dataclass(slots=True)
class _Partition:
    """What the loop keeps of one partition."""

    memory: Memory
    task: asyncio.Task[None] | None = None
    again: bool = False
    shadows: asyncio.Task[None] | None = field(default=None)


class Loop:
    """Drives all jobs from submission to their end.

    Parameters
    ----------
    state
        What the watches feed.
    on_partition
        Told of each partition whose jobs or GPUs changed, and after each of its cycles.
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._on_partition = on_partition
        self._kube = kube
        self._state = state
        self._events = events
        self._now = now
        self.jobs = Jobs(state)
        self._pods = JobPods.of(kube, state, events)
        self._statuses = StatusWriter(kube, state, self._status_refused)
        self._partitions: dict[str, _Partition] = {}
        self._busy: set[str] = set()
        self._deleting: set[str] = set()
        self._timers: list[tuple[datetime, str]] = []
        self._timer_of: dict[str, datetime] = {}
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
                uids, partitions = self._state.dirty.take()
                now = self._now()
                while self._timers and self._timers[0][0] <= now:
                    uid = heapq.heappop(self._timers)[1]
                    self._timer_of.pop(uid, None)
                    uids.add(uid)
                partitions |= self._look_at(uids, partitions, now)
                for name in partitions:
                    self._on_partition(name)
                    self._start_cycle(name)

    async def _wait(self) -> None:
        timeout = None
        if self._timers:
            timeout = max(0.0, (self._timers[0][0] - self._now()).total_seconds())
        try:
            async with asyncio.timeout(timeout):
                await self._state.dirty.event.wait()
        except TimeoutError:
            return
        await asyncio.sleep(DEBOUNCE)

    # Single jobs.

    def _look_at(self, uids: set[str], partitions: Iterable[str], now: datetime) -> set[str]:
        """Look at jobs; return the partitions that this concerns."""
        for name in partitions:
            if self.jobs.refresh_largest(name):
                uids |= {job.metadata.uid for job in self._state.jobs_of(name)}
                uids |= {
                    uid
                    for server in self._state.servers_of(name)
                    for uid in server.status.allocations
                }
        concerned = set()
        for uid in uids:
            if uid in self._busy:
                continue  # looked at again as soon as its writes are done
            concerned.add(self.jobs.partition_of(uid))
            made = self.jobs.look(uid, now)
            concerned.add(self.jobs.partition_of(uid))
            concerned |= {
                server.spec.partition
                for name in self._state.booked(uid)
                if (server := self._state.servers.get(name))
            }
            if made is not None:
                self._act(uid, made)
            else:
                self._statuses.drop(uid)
            self._wish_status(uid, now)
            self._set_timer(uid)
        concerned.discard("")
        return concerned

    def _act(self, uid: str, made: Plan) -> None:
        job = self._state.jobs[uid]
        for pod in made.delete_pods:
            if pod.uid not in self._deleting:
                self._deleting.add(pod.uid)
                self._log.info("ending pod", job=job.key, pod=pod.name)
                self._spawn(self._delete_pod(uid, made, pod.uid))
        if made.create_pod is not None:
            self._busy.add(uid)
            self._spawn(self._create_pod(job, made.create_pod))
        if made.expire:
            self._log.info("deleting job: its time to live is over", job=job.key)
            self._spawn(self._delete_job(job))

    async def _delete_pod(self, uid: str, made: Plan, pod_uid: str) -> None:
        try:
            for pod in made.delete_pods:
                if pod.uid == pod_uid:
                    await self._pods.delete(pod, now=made.delete_now)
        finally:
            self._deleting.discard(pod_uid)

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
        if (job.status.phase, job.status.reason) != (status.phase, status.reason):
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
        self.jobs.unwritable.add(uid)
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
        self._tasks.create_task(work)

    # Partitions.

    def _start_cycle(self, name: str) -> None:
        partition = self._state.partitions.get(name)
        kept = self._partitions.get(name)
        if kept is None:
            spec = partition.spec.policy if partition else PolicySpec()
            kept = self._partitions[name] = _Partition(Memory(PolicyRunner(spec)))
        if kept.task is not None and not kept.task.done():
            kept.again = True
            return
        kept.task = self._tasks.create_task(self._cycles(name, kept))

    async def _cycles(self, name: str, kept: _Partition) -> None:
        while True:
            kept.again = False
            try:
                await self._cycle(name, kept)
            except Exception:
                # A fault of ours; the loop lives, and the next change tries again.
                self._log.exception("cycle failed", partition=name)
                await asyncio.sleep(FAILED_CYCLE_PAUSE)
                self._state.dirty.partitions(name)
            self._on_partition(name)
            if not kept.again:
                return

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
                    partition, self._state, waiting, released, kept.memory, now
                )
            self._tell_preempted(result)
            await self._commit(partition, result, changes)
            self._explain(result)
            self._run_shadows(kept, result)
        elif changes.by_server:
            await self._write(changes, None)

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
                if self.jobs.explain(job.id, result.why[job.id], now, position):
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

    # Commit.

    async def _commit(
        self, partition: GPUPartition, result: CycleResult, changes: LedgerChanges
    ) -> None:
        """Book what was decided, then make the Pods; both after what is given back."""
        since = self._now()
        for job, gpus in result.placed:
            self._busy.add(job.id)
            self.jobs.waiting[partition.metadata.name].pop(job.id, None)
            self._log_placed(partition, job, gpus, result)
            self.jobs.beside[job.id] = self._names_on(gpus, result, job.id)
            for gpu in gpus:
                changes.book(job.id, gpu, self._allocation(job, result.booked[gpu], since))
        try:
            booked = await self._write(changes, partition)
            await asyncio.gather(
                *(
                    self._after_booking(job, all(booked.get(gpu, False) for gpu in gpus))
                    for job, gpus in result.placed
                )
            )
        finally:
            for job, _ in result.placed:
                self._busy.discard(job.id)
                self._state.dirty.jobs(job.id)

    def _allocation(self, job: Job, gpu: GPU, since: datetime) -> Allocation:
        namespace, _, name = job.name.partition("/")
        return Allocation(
            namespace=namespace,
            name=name,
            attempt=self.jobs.attempt_of(job.id),
            memory=gpu.memory if job.alone else job.memory,
            thread_percent=job.thread_percent,
            slots=job.slots,
            clients=job.clients,
            alone=job.alone,
            since=since,
        )

    async def _write(
        self, changes: LedgerChanges, partition: GPUPartition | None
    ) -> dict[str, bool]:
        """Write the ledgers at the same time, in no order: each is one object."""

        def sound(server: GPUServer, change: ServerChange) -> bool:
            if not change.book:
                return True
            return (
                partition is not None
                and server_state(server, partition, self._state) == "Ready"
                and not self._overbooked(server, change, partition)
            )

        async def write(name: str, change: ServerChange) -> tuple[str, bool]:
            done = await write_ledger(self._kube, self._state, name, change, sound)
            if not done and change.release and name in self._state.servers:
                # What is given back does not depend on what could not be booked.
                only = ServerChange(release=change.release)
                if not await write_ledger(self._kube, self._state, name, only, sound):
                    for uid in change.release:
                        self._later(uid)
            if done:
                self.jobs.releases[name] -= change.release
            return name, done

        written = await asyncio.gather(*(write(n, c) for n, c in changes.by_server.items()))
        return dict(written)

    @staticmethod
    def _overbooked(server: GPUServer, change: ServerChange, partition: GPUPartition) -> bool:
        max_jobs = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
        mps = server.spec.mode is SharingMode.MPS
        problems = overbooked(
            allocations_after(server, change),
            memory=bookable(server.status.memory, partition),
            max_jobs=max_jobs,
            max_clients=MPS_MAX_CLIENTS if mps else max_jobs,
        )
        return bool(problems)

    async def _after_booking(self, placed: Job, whole: bool) -> None:  # noqa: FBT001 - one caller
        job = self._state.jobs.get(placed.id)
        if job is None or not whole:
            # Booked in part, or gone meanwhile: the next look gives it back.
            return
        await self._make_pod(job, self.jobs.attempt_of(placed.id))

    async def _create_pod(self, job: SharedGPUJob, attempt: int) -> None:
        try:
            await self._make_pod(job, attempt)
        finally:
            self._busy.discard(job.metadata.uid)
            self._state.dirty.jobs(job.metadata.uid)

    async def _make_pod(self, job: SharedGPUJob, attempt: int) -> None:
        uid = job.metadata.uid
        booked = self._state.booked(uid)
        servers = [self._state.servers[name] for name in booked]
        partition = self._state.partitions.get(job.spec.partition)
        if partition is None or not servers:
            return
        grant = _grant(attempt, booked, servers, partition)
        match await self._pods.create(job, grant, self._now()):
            case Created.DONE:
                return
            case Created.LATER:
                self._later(uid)
                return
            case Created.NAME_TAKEN:
                self.jobs.name_taken(uid, attempt)
            case Refusal() as refusal:
                # The next look gives the booking back.
                self.jobs.refuse(uid, refusal)
                self._events.warn(job, refusal.why.reason.value, refusal.why.message)

    def _names_on(self, gpus: Sequence[str], result: CycleResult, uid: str) -> tuple[str, ...]:
        """Names of the jobs that a job meets on its GPUs."""
        there = {b.job for gpu in gpus for b in result.booked[gpu].bookings}
        there |= {job.id for job, theirs in result.placed if set(theirs) & set(gpus)}
        names = (
            self._state.jobs[other].key for other in there - {uid} if other in self._state.jobs
        )
        return tuple(sorted(names))

    def _log_placed(
        self, partition: GPUPartition, job: Job, gpus: Sequence[str], result: CycleResult
    ) -> None:
        answer = result.answer
        self._log.info(
            "placing",
            job=job.name,
            partition=partition.metadata.name,
            gpu=",".join(gpus),
            memory=job.memory,
            policy=answer.policy if answer else "aging",
            reason=(answer.failure if answer else "") or "it fits",
        )


def _grant(
    attempt: int,
    booked: dict[str, Allocation],
    servers: Sequence[GPUServer],
    partition: GPUPartition,
) -> Grant:
    first = next(iter(booked.values()))
    sharing = partition.spec.sharing
    return Grant(
        attempt=attempt,
        servers=tuple(booked),
        uuids=tuple(s.status.uuid for s in servers),
        node=servers[0].status.node,
        memory=min(a.memory for a in booked.values()),
        total_memory=min(s.status.memory for s in servers),
        mode=servers[0].spec.mode,
        thread_percent=first.thread_percent,
        oversubscription=sharing.oversubscription,
        device_injection=partition.spec.device_injection,
    )
