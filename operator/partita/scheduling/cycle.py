"""One scheduling cycle of one partition: from its queue to the placements to be made.

Nothing is written here. The steps: order the queue, leave out what quotas and namespaces do not
allow, serve jobs that were passed over too often, ask the policy, check its answer, choose whom
to preempt, and say why the others wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from partita.models import GPUPartition
from partita.scheduling.guard import Guard
from partita.scheduling.ledger import Held, totals
from partita.scheduling.preemption import victims_for
from partita.scheduling.queue import fair_order
from partita.scheduling.reasons import Reason, Why
from partita.scheduling.reservations import Aging, fit_among, gpus_to_hold
from partita.scheduling.runner import Answer, PolicyRunner
from partita.scheduling.snapshot import gpus_of, snapshot_of
from partita.scheduling.state import State
from partita.scheduling.waiting import WaitingReasons
from partita_policies.types import GPU, Booking, Job, Placement, Snapshot

__all__ = ["CycleResult", "Memory", "placements_of", "run_cycle"]


@dataclass(slots=True)
class Memory:
    """What a partition's cycles remember of each other."""

    runner: PolicyRunner
    aging: Aging = field(default_factory=Aging)
    nominated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """GPUs held for jobs for which others were preempted."""


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
    result = CycleResult()
    servers = state.servers_of(partition.metadata.name)
    held = totals(servers)
    gpus = _gpus(partition, state, released, now)
    memory.aging.keep_only(waiting.keys())
    eligible = _eligible(partition, state, waiting, held, gpus, result)
    weights = {q.namespace: q.weight for q in partition.spec.quotas}
    result.order = fair_order(
        eligible,
        held={name: h.memory for name, h in held.items()},
        weights=weights,
        whole_gpu=max((gpu.memory for gpu in gpus), default=1),
    )
    guard = _guard(partition, gpus, waiting, held, {})
    holds = _serve_aged(result, guard, memory, partition.spec.policy.max_bypasses)
    guard, accepted = await _ask_policy(
        partition, state, waiting, released, memory, now, result, holds
    )
    result.placed += accepted
    placed = {job.id for job, _ in result.placed}
    memory.aging.note(result.order, placed)
    for job_id in placed:
        memory.nominated.pop(job_id, None)
    if partition.spec.preemption == "LowerPriority":
        _preempt(result, guard, memory, holds, placed)
    reasons = WaitingReasons(
        guard.room,
        gpus,
        holds=holds,
        policy=result.answer.policy if result.answer else partition.spec.policy.name,
        partition=partition.metadata.name,
        carved=len(servers),
    )
    for job in result.order:
        if job.id not in placed:
            result.why.setdefault(job.id, reasons.why(job))
    result.booked = {gpu.id: gpu for gpu in gpus}
    return result


def _gpus(
    partition: GPUPartition, state: State, released: Mapping[str, set[str]], now: datetime
) -> tuple[GPU, ...]:
    gpus = gpus_of(partition, state, now)
    if not released:
        return gpus
    return tuple(_without(gpu, released[gpu.id]) if released.get(gpu.id) else gpu for gpu in gpus)


def _without(gpu: GPU, released: set[str]) -> GPU:
    return replace(gpu, bookings=tuple(b for b in gpu.bookings if b.job not in released))


def _guard(
    partition: GPUPartition,
    gpus: tuple[GPU, ...],
    waiting: Mapping[str, Job],
    held: Mapping[str, Held],
    holds: Mapping[str, str],
) -> Guard:
    quotas = {q.namespace: q for q in partition.spec.quotas}
    return Guard(gpus, waiting, quotas=quotas, held=held, holds=holds)


def _eligible(
    partition: GPUPartition,
    state: State,
    waiting: Mapping[str, Job],
    held: Mapping[str, Held],
    gpus: tuple[GPU, ...],
    result: CycleResult,
) -> list[Job]:
    """Leave out jobs that only we know cannot start: by namespace and by quota."""
    selector = partition.spec.allowed_namespaces
    quotas = {q.namespace: q for q in partition.spec.quotas}
    allowed: dict[str, bool] = {}
    guard = Guard((), {}, quotas=quotas, held=held, holds={})
    whole_gpu = min((gpu.memory for gpu in gpus), default=0)
    eligible = []
    for job in waiting.values():
        name = job.namespace
        if name not in allowed:
            labels = state.namespaces[name].labels if name in state.namespaces else {}
            allowed[name] = selector is None or selector.matches(labels)
        if not allowed[name]:
            result.why[job.id] = Why(
                Reason.NAMESPACE_NOT_ALLOWED,
                f"partition {partition.metadata.name} does not serve namespace {name}: label the "
                "namespace as spec.allowedNamespaces asks, or use another partition",
            )
        elif name in quotas and (
            quota := guard.quota_left(job, (whole_gpu if job.alone else job.memory) * job.gpus)
        ):
            result.why[job.id] = Why(Reason.QUOTA_EXCEEDED, quota)
        else:
            eligible.append(job)
    return eligible


def _serve_aged(result: CycleResult, guard: Guard, memory: Memory, limit: int) -> dict[str, str]:
    """Start jobs that must not be passed over again, or hold GPUs for them.

    Returns
    -------
    dict
        The job for which each held GPU is held.
    """
    gpus = guard.gpus
    holds: dict[str, str] = {}
    by_id = {job.id: job for job in result.order}
    for job_id in [j for j in memory.nominated if j not in by_id]:
        del memory.nominated[job_id]
    first = [by_id[job_id] for job_id in memory.nominated]
    first += [j for j in memory.aging.aged(result.order, limit) if j.id not in memory.nominated]
    for job in first:
        free = [gpu for gpu in gpus if gpu.id not in holds]
        if not free:
            break
        fitting = fit_among(job, guard.room, free)
        if fitting is not None and not guard.quota_left(job, guard.booked_memory(job, fitting)):
            guard.accept(job, fitting)
            result.placed.append((job, fitting))
            continue
        wanted = memory.nominated.get(job.id)
        if wanted is None or not set(wanted) <= {gpu.id for gpu in free}:
            wanted = gpus_to_hold(job, guard.room, free)
        if wanted is not None:
            holds |= dict.fromkeys(wanted, job.id)
    return holds


async def _ask_policy(
    partition: GPUPartition,
    state: State,
    waiting: Mapping[str, Job],
    released: Mapping[str, set[str]],
    memory: Memory,
    now: datetime,
    result: CycleResult,
    holds: dict[str, str],
) -> tuple[Guard, list[tuple[Job, tuple[str, ...]]]]:
    """Ask the policy about the GPUs that nobody is held for; check its answer."""
    first = list(result.placed)

    def fresh_guard() -> Guard:
        guard = _guard(
            partition,
            _gpus(partition, state, released, now),
            {uid: job for uid, job in waiting.items() if _still_waits(state, uid)},
            totals(state.servers_of(partition.metadata.name)),
            holds,
        )
        for job, gpus in first:
            guard.accept(job, gpus)
        return guard

    guard = fresh_guard()
    taken = {job.id for job, _ in first} | set(holds.values())
    jobs = [job for job in result.order if job.id not in taken]
    gpus = tuple(gpu for gpu in guard.remaining() if gpu.id not in holds)
    if not jobs or not gpus:
        return guard, []
    snapshot = result.snapshot = snapshot_of(partition, jobs, gpus, now)
    answer = await memory.runner.decide(snapshot)
    guard = fresh_guard()
    verdict = guard.check(answer.placements, snapshot)
    if verdict.broken is not None and not answer.failure:
        memory.runner.rejected += 1
        failure = f"policy {answer.policy} broke a rule: {verdict.broken.why}"
        answer = await memory.runner.fall_back(snapshot, failure)
        guard = fresh_guard()
        verdict = guard.check(answer.placements, snapshot)
    result.answer = answer
    for refused in verdict.refused:
        if refused.reason is not None:
            result.why[refused.placement.job] = Why(refused.reason, refused.why)
    return guard, verdict.accepted


def _still_waits(state: State, uid: str) -> bool:
    job = state.jobs.get(uid)
    return job is not None and not job.spec.suspend and not job.metadata.deletion_timestamp


def _preempt(
    result: CycleResult,
    guard: Guard,
    memory: Memory,
    holds: dict[str, str],
    placed: set[str],
) -> None:
    """End jobs of lower priority for the first waiting job that this lets in."""
    if memory.nominated:
        return  # one at a time: its room is on the way
    gpus = guard.remaining()
    for job in result.order:
        if job.id in placed or job.id in holds.values():
            continue
        found = victims_for(job, gpus, spared=set(holds))
        if found is None or not found[1]:
            return  # a job of less or the same priority cannot do better
        names, victims = found
        memory.nominated[job.id] = names
        holds |= dict.fromkeys(names, job.id)
        result.preempted += [(victim, job) for victim in victims]
        return


def placements_of(result: CycleResult) -> list[Placement]:
    """Return what was placed, as a policy would have said it."""
    return [Placement(job.id, gpus) for job, gpus in result.placed]
