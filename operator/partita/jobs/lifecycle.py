"""Plans one job from its current state: its spec, its attempts, its Pods and its allocations.

Level-triggered: the same state gives the same plan, independent of its history. So after a crash
between any two writes, work continues from there. The order of the writes makes that safe:

1. the claim and the Pod of an attempt, which hold nothing, before the allocation, which has the UID
   of the Pod;
2. the allocation before the scheduling gate of the Pod is removed (`claims.claim_lifecycle`);
3. the end of an attempt, in the job's status, before its allocation is released, and before its
   Pod is deleted if it is ended on purpose;
4. the mark that an allocation is being released, before its Pod is deleted (`pod_endings`).

An attempt begins with its allocation. A Pod that was created and has got none is used for the next
allocation, or deleted if the job wants no GPU any more.

A finished job stays finished, whatever is edited afterwards. The exception is a failed job that
gets a new value of the annotation `partita.dev/retry`: it is queued again, and its limits count
from there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from partita.constants import ANNOTATION_RETRY
from partita.jobs.attempts import (
    Ending,
    JobContext,
    back_off,
    judged_at,
    observe,
    trim,
    why_ended,
)
from partita.jobs.job_end import deadline_of, end_of, too_long
from partita.jobs.pod_endings import end_pods
from partita.jobs.start_timeout import attempt_state, not_started, unconfirmed
from partita.models import Allocation, Attempt, Outcome, Phase, SharedGPUJob
from partita.models.quantities import later, seconds_since
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita.times import Times

__all__ = ["Plan", "plan_job"]

_MAX_RETRY = 256
"""Maximum characters of a retry request that are used: an annotation may have up to 256 KiB, which
is too large for a status."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions for a job, and the contents of its status."""

    attempts: tuple[Attempt, ...] = ()
    phase: Phase = Phase.QUEUED
    reason: str = ""
    """Reason for the phase; empty while it waits for a GPU or runs."""
    message: str = ""
    wants_gpu: bool = False
    """Whether to offer the job to the policy."""
    next_attempt: int = 1
    has_pod: bool = False
    """Whether a Pod of the next attempt waits for its allocation."""
    read_missing: bool = False
    """Whether an attempt is allocated whose Pod or claim may or may not exist."""
    delete_claims: tuple[ClaimView, ...] = ()
    """Claims that no attempt needs."""
    delete_pods: tuple[PodView, ...] = ()
    grace: int | None = None
    """Grace period of these Pods in seconds; None for their own."""
    marks: Mapping[str, Allocation] = field(default_factory=dict)
    """Allocations to mark as releasing, by GPUServer, before their Pods are deleted."""
    release: bool = False
    """Whether its allocations are no longer needed."""
    wake: datetime | None = None
    """When to reconcile again even if nothing changes."""
    expire: bool = False
    """Whether its time to live after its end has passed."""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    retry: str = ""
    """The retry request that this plan processes."""
    retried_after: int | None = None
    """The last attempt that does not count against the limits."""


def plan_job(job: SharedGPUJob, context: JobContext, now: datetime) -> Plan:
    """Return the plan for a job."""
    plan = _plan_attempts(job, context, now)
    kept = {plan.next_attempt} if plan.wants_gpu else set()
    unused = tuple(p for p in context.waiting_pods if p.attempt not in kept and not p.deleting)
    return replace(
        plan,
        has_pod=any(p.attempt in kept for p in context.waiting_pods),
        delete_pods=(*plan.delete_pods, *unused),
        delete_claims=_unneeded_claims(plan, kept, context),
    )


def _unneeded_claims(
    plan: Plan, kept: Collection[int], context: JobContext
) -> tuple[ClaimView, ...]:
    """Return the claims that neither a Pod nor an allocation needs.

    Those of Pods that wait are left to the reconciliation after these are deleted.
    """
    needed = {p.attempt for p in (*context.pods, *context.waiting_pods) if p.alive} | {*kept}
    if not plan.release:
        needed.add(_allocated_attempt(context))
    return tuple(c for n, c in context.claims.items() if n not in needed and not c.deleting)


def _plan_attempts(job: SharedGPUJob, context: JobContext, now: datetime) -> Plan:
    saved = {a.number: a for a in job.status.attempts}
    attempts = observe(job, saved, context, now)
    retried = _is_retried(job)
    after = max(attempts, default=0) if retried else job.status.retried_after or 0
    start_time = (None if retried else job.status.start_time) or next(
        (a.start_time for n, a in sorted(attempts.items()) if n > after and a.start_time), None
    )
    attempts = _end_on_purpose(job, attempts, context, start_time, now)
    ordered = tuple(attempts[n] for n in sorted(attempts))
    counted = tuple(a for a in ordered if a.number > after)
    base = replace(
        _tidy_up(attempts if context.findings.status_refused else saved, context, now),
        attempts=trim(ordered, after),
        next_attempt=max(
            context.findings.first_attempt,
            *(n + 1 for n in (*attempts, _allocated_attempt(context))),
        ),
        start_time=start_time,
        wake=deadline_of(job, start_time),
        retry=_asked_retry(job),
        retried_after=after or None,
    )
    if retried:
        # The status is written before any action. Otherwise the next attempt would not count.
        said = "it is tried again, as somebody asked"
        return replace(base, phase=Phase.QUEUED, reason="Scheduling", message=said)
    end = end_of(job, counted, context.nothing_larger, start_time, now)
    if _is_complete(job, context) and _lacks_objects(attempts, context):
        base = replace(base, read_missing=True)
    if end is not None:
        return _finished(job, end, ordered, context=context, base=base, now=now)
    return _unfinished(job, ordered, counted, context=context, base=base, now=now)


def _asked_retry(job: SharedGPUJob) -> str:
    return job.metadata.annotations.get(ANNOTATION_RETRY, "")[:_MAX_RETRY]


def _is_retried(job: SharedGPUJob) -> bool:
    """Return whether a retry of a failed job is requested."""
    asked = _asked_retry(job)
    return job.status.phase is Phase.FAILED and bool(asked) and asked != job.status.retry


def _allocated_attempt(context: JobContext) -> int:
    """Return the allocated attempt; 0 for none."""
    return max((a.attempt for a in context.allocated.values()), default=0)


def _is_complete(job: SharedGPUJob, context: JobContext) -> bool:
    """Return whether an attempt is allocated on as many GPUs as the job has."""
    attempts = {a.attempt for a in context.allocated.values()}
    return len(context.allocated) == job.spec.gpus and len(attempts) == 1


def _lacks_objects(attempts: Mapping[int, Attempt], context: JobContext) -> bool:
    """Return whether the Pod of the allocated attempt, or the claim it starts with, is not seen.

    Either was lost while nobody watched, or the watch of its kind is behind the others.
    """
    number = _allocated_attempt(context)
    if number not in attempts:
        return True
    pod = next((p for p in context.pods if p.attempt == number and not p.deleting), None)
    if pod is None or attempts[number].outcome is not None:
        return False
    return _is_cleared(pod, context) if pod.node else number not in context.claims


def _tidy_up(written: Mapping[int, Attempt], context: JobContext, now: datetime) -> Plan:
    """Find the Pods to delete, and whether the allocations can be released.

    Parameters
    ----------
    written
        The attempts in the job's status. An attempt whose end is not written yet keeps its Pod and
        its allocation.
    """
    over = {n for n, a in written.items() if a.outcome is not None}
    number = _allocated_attempt(context)
    needed = number and (
        number not in over or any(p.alive and p.attempt == number for p in context.pods)
    )
    delete, grace, marks = end_pods(written, over, context, now)
    return Plan(
        delete_pods=delete,
        grace=grace,
        marks=marks,
        release=bool(context.allocated) and not needed,
    )


def _unfinished(
    job: SharedGPUJob,
    attempts: Sequence[Attempt],
    counted: Sequence[Attempt],
    *,
    context: JobContext,
    base: Plan,
    now: datetime,
) -> Plan:
    last = attempts[-1] if attempts else None
    alive = [p for p in context.pods if p.alive]
    number = _allocated_attempt(context)
    if last is not None and last.outcome is None:
        return _living(job, last, context, base)
    if base.read_missing:
        return replace(base, phase=Phase.ASSIGNED)
    if number and all(a.number != number for a in attempts):
        # A part of its allocation was not written, or others have removed it.
        base = replace(base, release=True, reason="Ending", message=_RELEASED)
    if job.spec.suspend:
        return replace(
            base, phase=Phase.SUSPENDED, reason="Suspended", message=_SUSPENDED, wake=None
        )
    if job.metadata.deletion_timestamp is not None:
        return replace(base, reason="Deleting", message="it is being deleted", wake=None)
    if last is not None and not base.reason and (alive or context.allocated):
        said = f"attempt {last.number} is still ending: {why_ended(last)}"
        said += unconfirmed(alive, context)
        return replace(base, reason="Ending", message=said)
    return base if base.reason else _queued(counted, base, context.findings.times, now)


_RELEASED = "a part of its GPUs could not be allocated, so the others are released"
_SUSPENDED = "spec.suspend is true: set it to false to queue the job"


def _living(job: SharedGPUJob, last: Attempt, context: JobContext, base: Plan) -> Plan:
    mine = next(p for p in context.pods if p.attempt == last.number)
    if not mine.alive:
        # It has finished, but its outcome is not decided yet: the status does not show the end.
        phase = Phase.RUNNING if job.status.phase is Phase.RUNNING else Phase.ASSIGNED
        return replace(base, phase=phase, wake=_earlier(base.wake, judged_at(mine, last, context)))
    found = attempt_state(mine, last, context)
    return replace(
        base,
        phase=found.phase,
        reason=found.reason,
        message=found.message,
        wake=_earlier(base.wake, found.wake),
    )


def _cannot_start(pod: PodView, context: JobContext) -> str:
    """Return what somebody did to the claim of a Pod, which therefore never starts; else empty."""
    if not pod.node:
        claim = context.claims.get(pod.attempt)
        deleted = context.claim_lost or (claim is not None and claim.deleting)
        return "its claim was deleted" if deleted and not pod.deleting else ""
    cleared = context.claim_lost and _is_cleared(pod, context)
    return "the allocation of its claim was cleared" if cleared else ""


def _is_cleared(pod: PodView, context: JobContext) -> bool:
    """Return whether the claim of a Pod that starts on a node has no allocation."""
    claim = context.claims.get(pod.attempt)
    return pod.startup is not None and claim is not None and claim.allocation is None


def _earlier(a: datetime | None, b: datetime | None) -> datetime | None:
    return min((t for t in (a, b) if t is not None), default=None)


def _queued(attempts: Sequence[Attempt], base: Plan, times: Times, now: datetime) -> Plan:
    until = back_off(attempts, now, times)
    if until is None or until <= now:
        return replace(base, wants_gpu=True)
    said = f"{why_ended(attempts[-1])}; next attempt at {until:%H:%M:%S} UTC"
    return replace(base, reason="BackOff", message=said, wake=_earlier(until, base.wake))


def _end_on_purpose(
    job: SharedGPUJob,
    attempts: dict[int, Attempt],
    context: JobContext,
    start_time: datetime | None,
    now: datetime,
) -> dict[int, Attempt]:
    """End the running attempt if there is a reason."""
    live = [n for n, a in attempts.items() if a.outcome is None]
    if not live:
        return attempts
    number = max(live)
    attempt = attempts[number]
    deadline = deadline_of(job, start_time)
    pod = next(p for p in context.pods if p.attempt == number)
    if job.spec.suspend:
        ending: Ending | None = Ending(Outcome.SUSPENDED, "spec.suspend was set")
    elif deadline is not None and deadline <= now:
        ending = Ending(Outcome.DEADLINE_EXCEEDED, too_long(job))
    elif attempt.node and not context.node_exists(attempt.node):
        ending = Ending(Outcome.NODE_LOST, f"node {attempt.node} is gone")
    elif sum(a.attempt == number for a in context.allocated.values()) < max(
        1, len(attempt.servers)
    ):
        ending = Ending(Outcome.EVICTED, "its allocation is gone from the ledger")
    elif pod.gated and not context.may_start:
        ending = Ending(Outcome.EVICTED, "its GPU takes no jobs any more")
    elif not pod.node and not _is_complete(job, context):
        ending = Ending(Outcome.EVICTED, "its allocation has other GPUs than it asks for")
    elif said := _cannot_start(pod, context):
        ending = Ending(Outcome.EVICTED, said)
    else:
        ending = context.ending or not_started(pod, attempt, context, now)
    if ending is None:
        return attempts
    ended = attempt.model_copy(
        update={
            "outcome": ending.outcome,
            "reason": ending.reason,
            "message": ending.message,
            "fault_suspect": ending.suspect if ending.outcome is Outcome.GPU_FAULT else None,
            "end_time": now,
            "peak_memory": context.report.peak,
        }
    )
    return attempts | {number: ended}


def _finished(
    job: SharedGPUJob,
    end: tuple[Phase, str, str],
    attempts: Sequence[Attempt],
    *,
    context: JobContext,
    base: Plan,
    now: datetime,
) -> Plan:
    alive = any(p.alive for p in context.pods)
    phase, reason, message = end
    written = job.status.phase is phase or context.findings.status_refused
    ended = attempts[-1].end_time if attempts else None
    completed = job.status.completion_time or ended or now
    expire, wake = False, None
    ttl = job.spec.ttl_seconds_after_finished
    if ttl is not None and job.metadata.deletion_timestamp is None:
        expire = written and seconds_since(completed, now) >= ttl
        wake = None if expire else later(completed, ttl)
    return replace(
        base,
        phase=phase,
        reason=reason,
        message=message,
        release=bool(context.allocated) and written and not alive and not base.read_missing,
        completion_time=completed,
        expire=expire,
        wake=wake,
    )
