"""The cycles of partitions: each decides which jobs start, and writes the result.

The cycles of one partition run sequentially in their own task, which makes all writes to the
partition's ledgers. So a policy that hangs delays only its own partition, and the operator never
makes two concurrent writes to one GPU.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil

import structlog

from partita.claims.claim_lifecycle import Eviction
from partita.constants import OTHERS_JOB
from partita.models import GPUPartition
from partita.models.partition import PolicySpec
from partita.pause import Pause
from partita.pods.termination import preemption_grace
from partita.process.cycle_writer import CycleWriter
from partita.process.reconcilers import Reconcilers
from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import CycleResult, Explained, placements_of
from partita.scheduling.gpu_state import times_of
from partita.scheduling.partition_state import PartitionState, Reservation
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.preemption import Preemption
from partita.scheduling.reasons import Reason, gib
from partita.scheduling.reservations import Aging
from partita.scheduling.waiting_jobs import BEHIND_OWN_JOBS
from partita.store.state import State
from partita.times import Times
from partita_policies.types import Job, RunningJob

__all__ = ["Cycles"]

ASK_AGAIN = 1.0
"""Seconds until the next cycle if the policy lets a job wait that would fit."""
CYCLE_REST = 0.5
"""Maximum seconds between two cycles of a partition; otherwise the duration of the first one. For
a newcomer, a namespace of which nothing waited then, it is that of its decision."""
PREEMPT_AGAIN = 2.0
"""Seconds until the next cycle after a preemption was not carried out."""
FAILED_CYCLE_PAUSE = 1.0
"""Seconds of pause after a cycle that raised an exception."""


@dataclass(slots=True)
class _Partition:
    """State of one partition between its cycles."""

    memory: PartitionState
    task: asyncio.Task[None] | None = None
    changed: bool = False
    """Whether another cycle was requested since the current one began."""
    considered: frozenset[str] = frozenset()
    """The namespaces of which anything waited at the last decision at which anything did."""
    decided: float = 0.0
    """When that was."""
    rest: asyncio.Task[None] | None = None
    building: asyncio.Task[None] | None = None
    """Builds the policies that could not be built."""
    shadows: asyncio.Task[None] | None = None


@dataclass
class Cycles:
    """Runs the cycles of all partitions.

    Parameters
    ----------
    tasks
        The task group in which the cycles run.
    on_decision
        Called with the result of each cycle in which a policy was called.
    past_shares
        Returns the mean dominant share that each namespace of a partition had lately.
    times
        Those of the policies.
    """

    state: State
    reconcilers: Reconcilers
    writer: CycleWriter
    tasks: asyncio.TaskGroup
    on_decision: Callable[[CycleResult], None]
    past_shares: Callable[[GPUPartition, datetime], Mapping[str, float]]
    times: Times

    def __post_init__(self) -> None:
        self._queue = self.state.queues.partitions
        self._of = self.reconcilers.of
        self._jobs = self.reconcilers.jobs
        self._demand = self.reconcilers.jobs.demand
        self._claims = self.reconcilers.claims
        self._partitions: dict[str, _Partition] = {}
        self._log = structlog.get_logger().bind(part="loop")

    def runner(self, partition: str) -> PolicyRunner | None:
        """Return a partition's policies, for its status."""
        kept = self._partitions.get(partition)
        return kept.memory.runner if kept else None

    def explain_behind(self) -> None:
        """Record why those wait that have come behind what cycles consider."""
        for name, waiting in self._demand.waiting.items():
            if (partition := self.state.partitions.get(name)) is not None:
                generation = partition.metadata.generation
                found = Explained(BEHIND_OWN_JOBS, None, 0, generation, self.state.now())
                for uid in waiting.newly_behind():
                    self._of(uid).explain(uid, found)

    def start(self, name: str) -> None:
        """Start a cycle of a partition, or request another one if a cycle is running."""
        partition = self.state.partitions.get(name)
        kept = self._partitions.get(name)
        if kept is None:
            spec = partition.spec.policy if partition else PolicySpec()
            jobs = self.state.jobs_of(name)
            counted = {job.metadata.uid: job.status.bypasses for job in jobs if job.status.bypasses}
            memory = PartitionState(PolicyRunner(spec, times=self.times), Aging(counted))
            kept = self._partitions[name] = _Partition(memory)
        if kept.task is not None and not kept.task.done():
            kept.changed = True
            if kept.rest is not None and self._has_newcomers(name, kept):
                kept.rest.cancel()
            return
        kept.task = self.tasks.create_task(self._run(name, kept))

    async def _run(self, name: str, kept: _Partition) -> None:
        loop = asyncio.get_running_loop()
        while True:
            kept.changed = False
            began = kept.decided = loop.time()
            starting: Collection[asyncio.Task[None]] = ()
            try:
                starting = await self._cycle(name, kept)
            except Exception:  # noqa: BLE001 - a bug; the cycle is repeated
                self._log.exception("cycle failed", partition=name)
                await asyncio.sleep(FAILED_CYCLE_PAUSE)
                self._queue.add(name)
            self.state.queues.allocations_changed(name)
            await self._rest(name, kept, began, starting)
            if not kept.changed:
                self._forget_if_gone(name)
                return

    async def _rest(
        self, name: str, kept: _Partition, began: float, starting: Collection[asyncio.Task[None]]
    ) -> None:
        """Pause: the slower the API server responds, the more allocations are put into one write.

        A newcomer waits only as long as the decision took, so that no other namespace delays it.
        """
        kept.rest = self.tasks.create_task(self._whole_rest(began, starting))
        await asyncio.sleep(min(kept.decided - began, CYCLE_REST))
        if self._has_newcomers(name, kept):
            kept.rest.cancel()
        await asyncio.wait([kept.rest])

    async def _whole_rest(self, began: float, starting: Collection[asyncio.Task[None]]) -> None:
        if starting:
            await asyncio.wait(starting, timeout=self.times.pods_started)
        await asyncio.sleep(min(asyncio.get_running_loop().time() - began, CYCLE_REST))

    def _has_newcomers(self, name: str, kept: _Partition) -> bool:
        """Return whether a namespace waits of which nothing waited at the last decision.

        Also a job for which GPUs are reserved, because its Pod exists now.
        """
        waiting = self._demand.waiting[name]
        reserved = any(uid in waiting for uid in kept.memory.reserved)
        return reserved or bool(waiting.namespaces - kept.considered)

    def _forget_if_gone(self, name: str) -> None:
        state = self.state
        if name in state.partitions or state.servers_of(name) or state.unknown_of(name):
            return
        del self._partitions[name]
        state.scarce_nodes.pop(name, None)
        self._demand.forget_partition(name)

    async def _cycle(self, name: str, kept: _Partition) -> Collection[asyncio.Task[None]]:
        """Run a cycle; return the tasks that start its Pods."""
        await self._build_policies(name, kept)
        partition = self.state.partitions.get(name)
        released = self._released(name)
        if partition is None or partition.metadata.deletion_timestamp:
            if released:
                await self.writer.write(None, CycleResult(), released)
            return ()
        result = await self._decide(partition, kept, released)
        for preemption in result.preemptions:
            self.tasks.create_task(self._preempt(name, kept, preemption))
        self._move(result)
        written = await self.writer.write(partition, result, released)
        for job, gpus in written.late:
            pause = Pause.of(self.state.now(), self.times.reserved)
            kept.memory.reserved[job.id] = Reservation(job, gpus, pause, result.chosen_by(job.id))
            self._queue.add_after(name, self.times.reserved)
        if any(self._demand.waiting[name].is_full(job.namespace) for job, _ in result.placed):
            self._queue.add(name)  # others have moved up
        self._explain(partition, result, nominated=kept.memory.nominated)
        if any(why.reason is Reason.POLICY_WAITS for why in result.why.values()):
            self._queue.add_after(name, ASK_AGAIN)
        if result.again is not None:
            self._queue.add_after(name, result.again)
        self._run_shadows(kept, result)
        return written.starting

    async def _build_policies(self, name: str, kept: _Partition) -> None:
        """Have the policies of a partition's spec."""
        partition = self.state.partitions.get(name)
        if partition is not None and kept.memory.runner.spec != partition.spec.policy:
            self._log.info("policy", partition=name, policy=partition.spec.policy.name)
            kept.memory.runner = PolicyRunner(partition.spec.policy, times=self.times)
        await kept.memory.runner.build()
        if kept.memory.runner.problem and (kept.building is None or kept.building.done()):
            kept.building = self.tasks.create_task(self._build_again(name, kept))

    async def _build_again(self, name: str, kept: _Partition) -> None:
        """Retry policies that cannot be built. Only what waits then needs a cycle."""
        while kept.memory.runner.problem and self._partitions.get(name) is kept:
            await asyncio.sleep(self.times.build_policy_again)
            await kept.memory.runner.build()
            self.state.queues.partition_statuses.add(name)
        if self._demand.waiting.get(name):
            self._queue.add(name)

    def _released(self, partition: str) -> dict[str, set[str]]:
        """Return the UIDs of those whose allocations are released, by GPUServer."""
        names = (server.metadata.name for server in self.state.servers_of(partition))
        return {name: set(uids) for name in names if (uids := self._demand.releases[name])}

    async def _decide(
        self, partition: GPUPartition, kept: _Partition, released: dict[str, set[str]]
    ) -> CycleResult:
        name, now, result = partition.metadata.name, self.state.now(), CycleResult()
        for expired in kept.memory.expire_reservations(now):
            self._jobs.delayed(expired.job.id, expired.job.namespace)
        kept.memory.past_shares = self.past_shares(partition, now)
        waiting, growths = self._demand.waiting[name], self._demand.growths[name]
        kept.considered = frozenset(waiting.namespaces) or kept.considered
        if waiting or growths:
            result = await Cycle(
                partition,
                self.state,
                waiting=waiting,
                released=released,
                memory=kept.memory,
                now=now,
                growths=dict(growths),
                protected=self._claims.protected(name, now),
            ).run()
            self.on_decision(result)
        self.state.scarce_nodes[name] = result.short
        kept.decided = asyncio.get_running_loop().time()
        return result

    def _move(self, result: CycleResult) -> None:
        """Request the eviction of claims that can get more memory on another GPU only."""
        for growth in result.moves:
            uid, memory = growth.job.id, gib(growth.job.memory)
            said = f"it ran out of GPU memory, and its next Pod gets {memory} on another GPU"
            self._claims.end(uid, Eviction(Reason.OUT_OF_MEMORY.value, said))
            self.state.queues.jobs.add(uid)

    async def _preempt(self, name: str, kept: _Partition, preemption: Preemption) -> None:
        """Preempt jobs for another job, once its Pod exists."""
        job, gpus = preemption.job, preemption.gpus
        try:
            allowed = await self.writer.may_preempt(job, gpus)
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("preemption failed", job=job.name)
            allowed = False
        # Otherwise it was placed or deleted.
        still_nominated = kept.memory.nominated.get(job.id) == gpus
        if not (allowed and still_nominated):
            if still_nominated:
                del kept.memory.nominated[job.id]
            for victim in preemption.victims:
                kept.memory.victims.discard(victim.job)
            self._queue.add_after(name, PREEMPT_AGAIN)
            return
        for victim in preemption.victims:
            self._log.info("preempting", job=victim.job, for_job=job.name)
            ended = self.state.user_of(victim.job)
            self._of(ended).end(ended, self._eviction(name, preemption, victim))
            self.state.queues.jobs.add(ended)

    def _eviction(self, partition: str, preemption: Preemption, victim: RunningJob) -> Eviction:
        """Return why the Pod of a job or a claim is ended for a waiting job."""
        job, grace = preemption.job, ceil(preemption_grace(times_of(partition, self.state)))
        if victim.job in preemption.idle:
            said = f"it does not use its GPU, and {_named_to(victim, job)} needs room"
            return Eviction(Reason.IDLE.value, said, grace)
        return Eviction("Preempted", _why_preempted(job, victim), grace)

    def _explain(
        self, partition: GPUPartition, result: CycleResult, *, nominated: Collection[str]
    ) -> None:
        """Record why each job waits that has not come behind others of its namespace meanwhile."""
        waiting = self._demand.waiting[partition.metadata.name]
        for uid, said in result.not_grown.items():
            self._claims.not_grown(uid, said)
        for uid, found in result.explained(partition.metadata.generation, self.state.now()):
            if uid in nominated or not waiting.is_behind(uid):
                self._of(uid).explain(uid, found)

    def _run_shadows(self, kept: _Partition, result: CycleResult) -> None:
        if result.snapshot is None or not kept.memory.runner.shadow_counts:
            return
        if kept.shadows is None or kept.shadows.done():
            work = kept.memory.runner.run_shadows(result.snapshot, placements_of(result))
            kept.shadows = self.tasks.create_task(work)


def _named_to(victim: RunningJob, job: Job) -> str:
    """Return a waiting job's name, unless whom it is told may not know it."""
    return job.name if job.namespace == victim.namespace else OTHERS_JOB


def _why_preempted(job: Job, victim: RunningJob) -> str:
    """Return why a running job is ended for a waiting one."""
    other = _named_to(victim, job)
    if victim.priority < job.priority:
        return f"{other} of priority {job.priority} needs room"
    return f"{other} needs what its namespace is guaranteed (quotas[].guaranteed)"
