"""What becomes of one job, from what is there: its spec, its attempts, its Pods, its bookings.

Level-triggered: the same state gives the same plan, however it came about, so a crash between
any two writes is taken up where it happened. The order of the writes makes that safe:

1. the booking, with the number of the attempt, before the attempt's Pod;
2. the end of an attempt, in the job's status, before its booking is released, and before its
   Pod is deleted where it is ended on purpose.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

from partita.models import Allocation, Attempt, Outcome, Phase, SharedGPUJob
from partita.models.base import seconds_since
from partita.pods.job import pod_name
from partita.scheduling.views import PodView

__all__ = ["Ending", "Plan", "Surroundings", "plan"]

FIRST_BACK_OFF = 2.0
"""Seconds before the first retry of a failed program, doubled each time (an assumption; batch/v1
Job starts at 10 s)."""
MAX_BACK_OFF = 300.0
"""Most seconds before a retry; batch/v1 Job uses 6 minutes."""
MAX_ATTEMPTS_KEPT = 20
"""Attempts kept in the status; those that count against a limit are all kept."""

_COUNTED = {Outcome.FAILED, Outcome.OUT_OF_MEMORY}


@dataclass(frozen=True, slots=True)
class Ending:
    """An attempt is to be ended on purpose."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a job's plan depends on beside the job itself."""

    pods: Sequence[PodView]
    """Its Pods, by attempt."""
    booked: Mapping[str, Allocation]
    """What it has booked, by GPUServer."""
    uuids: Mapping[str, str]
    """UUIDs of those GPUs."""
    nodes: Mapping[str, str]
    """Nodes of those GPUs."""
    node_exists: Callable[[str], bool]
    ending: Ending | None
    """Somebody wants its attempt to end: preemption, a drained or faulted GPU."""
    peak: int | None
    """Most GPU memory that it was seen to use in this attempt, bytes."""
    beside: Sequence[str] = ()
    """Jobs that share its GPUs."""
    status_refused: bool = False
    """The API server never takes its status, so nothing waits for that."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for a job now."""

    attempts: tuple[Attempt, ...] = ()
    phase: Phase = Phase.QUEUED
    reason: str = ""
    """Why it ended as it did; empty while it waits for a GPU or runs."""
    message: str = ""
    wants_gpu: bool = False
    """It is to be offered to the policy."""
    next_attempt: int = 1
    create_pod: int | None = None
    """The attempt that is booked in full and whose Pod is not there."""
    delete_pods: tuple[PodView, ...] = ()
    delete_now: bool = False
    """Their node is gone: nobody will confirm the deletion."""
    release: bool = False
    """Nothing of it needs its bookings any more."""
    wake: datetime | None = None
    """When to look again though nothing has changed."""
    expire: bool = False
    """Its time to live after its end is over."""
    start_time: datetime | None = None
    completion_time: datetime | None = None


def plan(job: SharedGPUJob, around: Surroundings, now: datetime) -> Plan:
    """Decide what becomes of a job."""
    saved = {a.number: a for a in job.status.attempts}
    attempts = _attempts(job, saved, around, now)
    start_time = job.status.start_time or next(
        (a.start_time for a in attempts.values() if a.start_time), None
    )
    attempts = _end_on_purpose(job, attempts, around, start_time, now)
    ordered = tuple(attempts[n] for n in sorted(attempts))
    alive = [p for p in around.pods if p.alive]
    number = max((a.attempt for a in around.booked.values()), default=0)
    written = attempts if around.status_refused else saved
    over = {n for n, a in written.items() if a.outcome is not None}
    # What is not yet written down as over keeps its booking.
    needed = number and (number not in over or any(p.attempt == number for p in alive))
    doomed = tuple(
        p
        for p in alive
        if (p.attempt in over and not p.deleting)
        or (p.attempt in over and not around.node_exists(p.node) and p.node)
    )
    base = Plan(
        attempts=_trim(ordered),
        delete_pods=doomed,
        delete_now=any(p.node and not around.node_exists(p.node) for p in doomed),
        release=bool(around.booked) and not needed,
        next_attempt=max([*attempts, number]) + 1,
        start_time=start_time,
    )
    end = _end(job, ordered)
    if end is not None:
        return _finished(job, end, ordered, around, base, now)
    last = ordered[-1] if ordered else None
    if last is not None and last.outcome is None:
        return _living(job, last, alive, base)
    if number and number not in attempts:
        return _booked_without_pod(job, number, around, base)
    if job.spec.suspend:
        return replace(base, phase=Phase.SUSPENDED, reason="Suspended", message=_SUSPENDED)
    if alive or around.booked:
        said = f"attempt {last.number if last else number} is still ending: {_why(last)}"
        return replace(base, reason="Ending", message=said)
    return _queued(ordered, base, now)


_SUSPENDED = "spec.suspend is true: set it to false to queue the job"


def _living(job: SharedGPUJob, last: Attempt, alive: Sequence[PodView], base: Plan) -> Plan:
    mine = next((p for p in alive if p.attempt == last.number), None)
    running = mine is not None and mine.outcome.running
    stuck = mine.outcome.stuck if mine is not None and not running else ""
    return replace(
        base,
        phase=Phase.RUNNING if running else Phase.ASSIGNED,
        reason="PodNotStarting" if stuck else "",
        message=stuck,
        wake=_deadline(job, base.start_time),
    )


def _queued(attempts: Sequence[Attempt], base: Plan, now: datetime) -> Plan:
    until = _back_off(attempts, now)
    if until is None or until <= now:
        return replace(base, wants_gpu=True)
    said = f"{_why(attempts[-1])}; next attempt at {until:%H:%M:%S} UTC"
    return replace(base, reason="BackOff", message=said, wake=until)


def _why(attempt: Attempt | None) -> str:
    if attempt is None or attempt.outcome is None:
        return "it has not started"
    code = f" with exit code {attempt.exit_code}" if attempt.exit_code else ""
    said = f": {attempt.message}" if attempt.message else ""
    return f"attempt {attempt.number} ended as {attempt.outcome}{code}{said}"


def _attempts(
    job: SharedGPUJob, saved: Mapping[int, Attempt], around: Surroundings, now: datetime
) -> dict[int, Attempt]:
    """Bring the attempts up to date with the Pods."""
    attempts = dict(saved)
    pods = {p.attempt: p for p in around.pods}
    for pod in around.pods:
        old = attempts.get(pod.attempt) or _new_attempt(job, pod, around)
        attempts[pod.attempt] = _observed(old, pod, around, now)
    for number, attempt in saved.items():
        if attempt.outcome is None and number not in pods:
            lost = bool(attempt.node) and not around.node_exists(attempt.node)
            outcome = Outcome.NODE_LOST if lost else Outcome.POD_DELETED
            said = f"node {attempt.node} is gone" if lost else "somebody deleted the Pod"
            attempts[number] = attempt.model_copy(
                update={"outcome": outcome, "end_time": now, "message": said}
            )
    return attempts


def _new_attempt(job: SharedGPUJob, pod: PodView, around: Surroundings) -> Attempt:
    mine = {s: a for s, a in around.booked.items() if a.attempt == pod.attempt}
    first = next(iter(mine.values()), None)
    return Attempt(
        number=pod.attempt,
        pod=pod_name(job.metadata.name, pod.attempt),
        servers=tuple(mine),
        gpus=tuple(around.uuids[s] for s in mine),
        node=next((around.nodes[s] for s in mine), ""),
        memory=first.memory if first else pod.memory,
        booked_time=first.since if first else None,
        beside=tuple(around.beside),
    )


def _observed(attempt: Attempt, pod: PodView, around: Surroundings, now: datetime) -> Attempt:
    seen = pod.outcome
    update: dict[str, object] = {}
    if pod.node and not attempt.node:
        update["node"] = pod.node
    if seen.started_at and attempt.start_time is None:
        # The node's clock may be off; ours said when the booking was made and what is now.
        update["start_time"] = min(max(seen.started_at, attempt.booked_time or now), now)
    if seen.finished and attempt.outcome is None:
        deleted = pod.deleting and seen.outcome is not Outcome.SUCCEEDED
        update |= {
            "outcome": Outcome.POD_DELETED if deleted else seen.outcome,
            "end_time": min(seen.finished_at or now, now),
            "exit_code": seen.exit_code,
            "message": "somebody deleted the Pod" if deleted else seen.message,
            "peak_memory": around.peak,
        }
    return attempt.model_copy(update=update) if update else attempt


def _end_on_purpose(
    job: SharedGPUJob,
    attempts: dict[int, Attempt],
    around: Surroundings,
    start_time: datetime | None,
    now: datetime,
) -> dict[int, Attempt]:
    """End the attempt that runs where there is a reason to."""
    live = [n for n, a in attempts.items() if a.outcome is None]
    if not live:
        return attempts
    number = max(live)
    attempt = attempts[number]
    deadline = _deadline(job, start_time)
    if job.spec.suspend:
        ending: Ending | None = Ending(Outcome.SUSPENDED, "spec.suspend was set")
    elif deadline is not None and deadline <= now:
        said = f"it ran longer than activeDeadlineSeconds ({job.spec.active_deadline_seconds})"
        ending = Ending(Outcome.DEADLINE_EXCEEDED, said)
    elif attempt.node and not around.node_exists(attempt.node):
        ending = Ending(Outcome.NODE_LOST, f"node {attempt.node} is gone")
    elif sum(a.attempt == number for a in around.booked.values()) < max(1, len(attempt.servers)):
        ending = Ending(Outcome.EVICTED, "its booking is gone from the ledger")
    else:
        ending = around.ending
    if ending is None:
        return attempts
    ended = attempt.model_copy(
        update={
            "outcome": ending.outcome,
            "message": ending.message,
            "end_time": now,
            "peak_memory": around.peak,
        }
    )
    return attempts | {number: ended}


def _deadline(job: SharedGPUJob, start_time: datetime | None) -> datetime | None:
    seconds = job.spec.active_deadline_seconds
    if seconds is None or start_time is None:
        return None
    return start_time + timedelta(seconds=seconds)


def _end(job: SharedGPUJob, attempts: Sequence[Attempt]) -> tuple[Phase, str, str] | None:
    """Tell whether the job has come to its end: phase, reason, message."""
    if not attempts or attempts[-1].outcome is None:
        return None
    last, retry = attempts[-1], job.spec.retry
    count = Counter(a.outcome for a in attempts)
    match last.outcome:
        case Outcome.SUCCEEDED:
            return Phase.SUCCEEDED, "Succeeded", ""
        case Outcome.DEADLINE_EXCEEDED:
            return Phase.FAILED, "DeadlineExceeded", last.message
        case Outcome.FAILED if count[Outcome.FAILED] > retry.limit:
            times = count[Outcome.FAILED]
            said = f"it failed {times} times (retry.limit: {retry.limit}); {_why(last)}"
            return Phase.FAILED, "RetryLimitExceeded", said
        case Outcome.OUT_OF_MEMORY if count[Outcome.OUT_OF_MEMORY] > retry.out_of_memory.limit:
            said = (
                f"it ran out of GPU memory {count[Outcome.OUT_OF_MEMORY]} times "
                f"(retry.outOfMemory.limit: {retry.out_of_memory.limit}); {_why(last)}"
            )
            return Phase.FAILED, "OutOfMemory", said
        case _:
            return None


def _finished(
    job: SharedGPUJob,
    end: tuple[Phase, str, str],
    attempts: Sequence[Attempt],
    around: Surroundings,
    base: Plan,
    now: datetime,
) -> Plan:
    alive = any(p.alive for p in around.pods)
    phase, reason, message = end
    written = job.status.phase is phase or around.status_refused
    completed = job.status.completion_time or attempts[-1].end_time or now
    expire, wake = False, None
    if job.spec.ttl_seconds_after_finished is not None:
        ttl = job.spec.ttl_seconds_after_finished
        expire = written and seconds_since(completed, now) >= ttl
        wake = None if expire else completed + timedelta(seconds=ttl)
    return replace(
        base,
        phase=phase,
        reason=reason,
        message=message,
        release=bool(around.booked) and written and not alive,
        completion_time=completed,
        expire=expire,
        wake=wake,
    )


def _booked_without_pod(job: SharedGPUJob, number: int, around: Surroundings, base: Plan) -> Plan:
    """Finish, or give back, what a crash or a conflict left between booking and Pod."""
    whole = [a for a in around.booked.values() if a.attempt == number]
    wanted = len(whole) == job.spec.gpus == len(around.booked)
    base = replace(base, next_attempt=number)
    if job.spec.suspend:
        base = replace(base, phase=Phase.SUSPENDED, reason="Suspended", message=_SUSPENDED)
    elif wanted and around.ending is None:
        return replace(base, phase=Phase.ASSIGNED, create_pod=number)
    else:
        base = replace(base, reason="Ending", message="a booking is given back")
    return replace(base, release=True)


def _back_off(attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    """When the next attempt may be made after one that is likely to end as before."""
    if not attempts:
        return None
    match attempts[-1].outcome:
        case Outcome.FAILED:
            failures = sum(a.outcome is Outcome.FAILED for a in attempts)
        case Outcome.EVICTED:
            # What turned it away, such as a kubelet out of devices, may do so again.
            last = takewhile(lambda a: a.outcome is Outcome.EVICTED, reversed(attempts))
            failures = sum(1 for _ in last)
        case _:
            return None
    wait = timedelta(seconds=min(FIRST_BACK_OFF * 2.0 ** (failures - 1), MAX_BACK_OFF))
    return min(attempts[-1].end_time or now, now) + wait


def _trim(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Keep the status small: of attempts that count against no limit only the last ones stay."""
    surplus = len(attempts) - MAX_ATTEMPTS_KEPT
    if surplus <= 0:
        return attempts
    idle = [a.number for a in attempts[:-1] if a.outcome not in _COUNTED and a.outcome]
    dropped = set(idle[:surplus])
    return tuple(a for a in attempts if a.number not in dropped)
