"""One scheduling cycle of one partition: from its queue to the placements to be made.

Nothing is written here. The steps: order the queue, leave out what quotas and namespaces do not
allow, serve jobs that were passed over too often, ask the policy, check its answer, choose whom
to preempt, and say why the others wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from partita.models import GPUPartition
from partita.scheduling.guard import Guard
from partita.scheduling.ledger import totals
from partita.scheduling.preemption import victims_for
from partita.scheduling.queue import fair_order
from partita.scheduling.reasons import Reason, Why
from partita.scheduling.reservations import Aging, fit_among, gpus_to_hold
from partita.scheduling.runner import Answer, PolicyRunner
from partita.scheduling.snapshot import gpus_of, snapshot_of
from partita.scheduling.state import State
from partita.scheduling.waiting import WaitingReasons
from partita_policies.types import GPU, Booking, Job, Placement, Snapshot

__all__ = ["CycleResult", "Memory", "Nomination", "placements_of", "run_cycle"]

SHAPES_TRIED = 32
"""Different requests for which a cycle looks whom to preempt; more waits for the next one."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """GPUs held for a job for which others are being ended."""

    gpus: tuple[str, ...]
    victims: frozenset[str]
    """UIDs of the jobs that are being ended."""


@dataclass(slots=True)
class Memory:
    """What a partition's cycles remember of each other."""

    runner: PolicyRunner
    aging: Aging = field(default_factory=Aging)
    nominated: dict[str, Nomination] = field(default_factory=dict)
    """By UID of the job for which others are ended."""


@dataclass(slots=True)
class CycleResult:
    """What a cycle decided."""

    placed: list[tuple[Job, tuple[str, ...]]] = field(default_factory=list)
    booked: dict[str, GPU] = field(default_factory=dict)
    """The GPUs as they were decided on, by name."""
    preempted: list[tuple[Booking, Job]] = field(default_factory=list)
    """Who is to be ended, and for whom."""
    order: list[Job] = field(default_factory=list)
    """The queue in its order, with those that were placed."""
    why: dict[str, Why] = field(default_factory=dict)
    """Why each of the others waits."""
    answer: Answer | None = None
    snapshot: Snapshot | None = None


async def run_cycle(
    partition: GPUPartition,
    state: State,
    *,
    waiting: Mapping[str, Job],
    released: Mapping[str, set[str]],
    memory: Memory,
    now: datetime,
) -> CycleResult:
    """Decide what starts now.

    Parameters
    ----------
    waiting
        The jobs that want GPUs, by UID. It may change while the policy thinks.
    released
        Bookings that this cycle's write gives back, by GPUServer: they count as free.
    memory
        What earlier cycles left.
    """
    cycle = _Cycle(partition, state, waiting=waiting, released=released, memory=memory, now=now)
    return await cycle.run()


class _Cycle:
    def __init__(
        self,
        partition: GPUPartition,
        state: State,
        *,
        waiting: Mapping[str, Job],
        released: Mapping[str, set[str]],
        memory: Memory,
        now: datetime,
    ) -> None:
        self._partition = partition
        self._state = state
        self._waiting = waiting
        self._released = released
        self._memory = memory
        self._now = now
        self._holds: dict[str, str] = {}
        """The job for which each held GPU is held."""
        self._result = CycleResult()

    async def run(self) -> CycleResult:
        result, memory = self._result, self._memory
        guard = self._guard()
        result.order = self._queue(guard)
        self._serve_first(guard)
        if self._partition.spec.preemption == "LowerPriority":
            self._preempt(guard)
        guard = await self._ask_policy(guard)
        placed = {job.id for job, _ in result.placed}
        # Whose booking was only now heard of, its answer having been lost, waits no longer.
        result.order = [j for j in result.order if j.id in placed or not self._state.booked(j.id)]
        memory.aging.note(result.order, placed)
        for job_id in placed:
            memory.nominated.pop(job_id, None)
        self._explain(guard, placed)
        result.booked = {gpu.id: gpu for gpu in guard.gpus}
        return result

    def _guard(self) -> Guard:
        """Look at the partition as it is now, and book on it what is placed already."""
        name = self._partition.metadata.name
        gpus = gpus_of(self._partition, self._state, self._now)
        guard = Guard(
            tuple(_without(gpu, self._released.get(gpu.id)) for gpu in gpus),
            {uid: job for uid, job in self._waiting.items() if self._still_waits(uid)},
            quotas={q.namespace: q for q in self._partition.spec.quotas},
            held=totals(self._state.servers_of(name), self._released),
        )
        placed, self._result.placed = self._result.placed, []
        for job, where in placed:
            if not guard.refusal(job.id, where):
                guard.accept(job, where)
                self._result.placed.append((job, where))
        return guard

    def _still_waits(self, uid: str) -> bool:
        job = self._state.jobs.get(uid)
        return job is not None and not job.spec.suspend and not job.metadata.deletion_timestamp

    def _queue(self, guard: Guard) -> list[Job]:
        """Order the jobs that may start, as far as only we know."""
        aging = self._memory.aging
        aging.keep_only(self._waiting.keys())
        order = fair_order(
            [job for job in self._waiting.values() if self._is_eligible(job, guard)],
            held=guard.held_memory(),
            weights={q.namespace: q.weight for q in self._partition.spec.quotas},
            whole_gpu=max((gpu.memory for gpu in guard.gpus), default=1),
        )
        passed = aging.bypasses
        return [replace(j, bypasses=passed[j.id]) if j.id in passed else j for j in order]

    def _is_eligible(self, job: Job, guard: Guard) -> bool:
        """Tell whether namespace and quota allow a job; say why not."""
        if not self._still_waits(job.id):
            return False
        partition, name = self._partition, job.namespace
        selector, namespace = partition.spec.allowed_namespaces, self._state.namespaces.get(name)
        if selector is not None and not selector.matches(namespace.labels if namespace else {}):
            self._result.why[job.id] = Why(
                Reason.NAMESPACE_NOT_ALLOWED,
                f"partition {partition.metadata.name} does not serve namespace {name}: label the "
                "namespace as spec.allowedNamespaces asks, or use another partition",
            )
            return False
        quota = guard.quota_left(job, guard.least_memory(job))
        if quota:
            self._result.why[job.id] = Why(Reason.QUOTA_EXCEEDED, quota)
        return not quota

    def _serve_first(self, guard: Guard) -> None:
        """Start jobs that must not be passed over again, or hold GPUs for them."""
        memory, limit = self._memory, self._partition.spec.policy.max_bypasses
        by_id = {job.id: job for job in self._result.order}
        aged = memory.aging.aged(self._result.order, limit)
        for job_id in [j for j in memory.nominated if j not in by_id]:
            del memory.nominated[job_id]
        nominated = [by_id[job_id] for job_id in memory.nominated]
        for job in [*nominated, *(j for j in aged if j.id not in memory.nominated)]:
            free = [gpu for gpu in guard.gpus if gpu.id not in self._holds]
            fitting = fit_among(job, guard.room, free)
            if fitting is not None:
                if not guard.refusal(job.id, fitting):
                    guard.accept(job, fitting)
                    self._result.placed.append((job, fitting))
                continue
            wanted = self._on_their_way(job, free)
            if wanted is None and job in aged:
                wanted = gpus_to_hold(job, guard.room, free)
            # GPUs are not held for a job that its namespace's quota keeps waiting.
            if wanted and not guard.quota_left(job, guard.booked_memory(job, wanted)):
                self._holds |= dict.fromkeys(wanted, job.id)

    def _on_their_way(self, job: Job, free: Sequence[GPU]) -> tuple[str, ...] | None:
        """Return the GPUs on which others are still being ended for a job."""
        nomination = self._memory.nominated.get(job.id)
        if nomination is None:
            return None
        gpus = [gpu for gpu in free if gpu.id in nomination.gpus]
        ending = any(b.job in nomination.victims for gpu in gpus for b in gpu.bookings)
        if len(gpus) == len(nomination.gpus) and ending:
            return nomination.gpus
        del self._memory.nominated[job.id]  # it came to nothing
        return None

    def _preempt(self, guard: Guard) -> None:
        """End jobs of lower priority for the first waiting job that this lets in."""
        if self._memory.nominated:
            return  # one at a time: its room is on the way
        fresh = {job.id for job, _ in self._result.placed}
        gpus = guard.remaining()
        running = [b.priority for g in gpus for b in g.bookings if b.job not in fresh]
        lowest = min(running, default=None)
        tried: set[tuple[object, ...]] = set()
        for job in self._result.order:
            if lowest is None or job.priority <= lowest or len(tried) >= SHAPES_TRIED:
                return
            shape = (job.priority, job.memory, job.gpus, job.slots, job.clients, job.alone)
            if job.id in fresh or shape in tried:
                continue
            tried.add(shape)
            spared = {gpu for gpu, owner in self._holds.items() if owner != job.id}
            found = victims_for(job, gpus, spared=spared, kept=fresh)
            if found is None or not found[1]:
                continue  # nothing would help, or it fits as it is
            names, victims = found
            if guard.quota_left(job, guard.booked_memory(job, names)):
                continue
            nomination = Nomination(names, frozenset(victim.job for victim in victims))
            self._memory.nominated[job.id] = nomination
            self._holds = {g: owner for g, owner in self._holds.items() if owner != job.id}
            self._holds |= dict.fromkeys(names, job.id)
            self._result.preempted += [(victim, job) for victim in victims]
            return

    async def _ask_policy(self, guard: Guard) -> Guard:
        """Ask the policy about the GPUs that nobody is held for; check its answer.

        Returns
        -------
        Guard
            With the partition as it is after the policy has thought.
        """
        result, runner = self._result, self._memory.runner
        taken = {job.id for job, _ in result.placed} | set(self._holds.values())
        jobs = [job for job in result.order if job.id not in taken]
        gpus = tuple(gpu for gpu in guard.remaining() if gpu.id not in self._holds)
        if not jobs or not gpus:
            return guard
        snapshot = result.snapshot = snapshot_of(self._partition, jobs, gpus, self._now)
        answer = await runner.decide(snapshot)
        guard = self._guard()
        verdict = guard.check(answer.placements, snapshot)
        if verdict.broken and not answer.failure:
            runner.rejected += len(verdict.broken)
            failure = f"policy {answer.policy} broke a rule: {verdict.broken[0].why}"
            answer = await runner.fall_back(snapshot, failure)
            guard = self._guard()
            verdict = guard.check(answer.placements, snapshot)
        result.answer = answer
        result.placed += verdict.accepted
        return guard

    def _explain(self, guard: Guard, placed: set[str]) -> None:
        result, partition = self._result, self._partition
        reasons = WaitingReasons(
            guard.room,
            guard.gpus,
            holds=self._holds,
            policy=result.answer.policy if result.answer else partition.spec.policy.name,
            partition=partition.metadata.name,
            wanted=partition.spec.gpus,
        )
        for job in result.order:
            if job.id in placed:
                continue
            quota = guard.quota_left(job, guard.least_memory(job))
            result.why[job.id] = Why(Reason.QUOTA_EXCEEDED, quota) if quota else reasons.why(job)


def _without(gpu: GPU, released: set[str] | None) -> GPU:
    if not released:
        return gpu
    return replace(gpu, bookings=tuple(b for b in gpu.bookings if b.job not in released))


def placements_of(result: CycleResult) -> list[Placement]:
    """Return what was placed of what the policy was asked about, as it would have said it."""
    asked = {job.id for job in result.snapshot.jobs} if result.snapshot else set()
    return [Placement(job.id, gpus) for job, gpus in result.placed if job.id in asked]
