"""Computes the status of a SharedGPUJob from its plan, and how soon to write it."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from partita.jobs.attempts import MAX_ATTEMPTS_KEPT
from partita.jobs.lifecycle import Plan
from partita.models import (
    Assignment,
    Attempt,
    EstimatedStart,
    Phase,
    SharedGPUJob,
    SharedGPUJobStatus,
)
from partita.models.conditions import ConditionChanges
from partita.scheduling.reasons import WaitingReason, stalled
from partita.times import Times

__all__ = [
    "job_status",
    "keep_times",
    "same_status",
    "takes_back",
    "within",
]

_MAX_MESSAGE = 4096


def job_status(
    job: SharedGPUJob,
    plan: Plan,
    now: datetime,
    *,
    place: Assignment | None = None,
    why: WaitingReason | None = None,
    position: int | None = None,
    expected: EstimatedStart | None = None,
    bypasses: int = 0,
    readable: bool = True,
    priority_cap: int | None = None,
) -> SharedGPUJobStatus:
    """Compute the status of a job.

    Parameters
    ----------
    place
        What it has allocated, if anything.
    why
        Why it waits, if it does.
    position
        Its position in the queue, if it waits.
    expected
        When it starts, if it waits.
    bypasses
        Number of cycles that bypassed it.
    readable
        Whether the current version of the job could be read.
    priority_cap
        The highest priority that it may have; None if its partition is unknown.
    """
    waiting = plan.phase is Phase.QUEUED
    reason, message = plan.reason, plan.message
    if waiting and why is not None:
        reason, message = why.reason.value, why.message
    assignment = None
    if place is not None and plan.phase in {Phase.ASSIGNED, Phase.RUNNING}:
        assignment = place
    elif plan.phase.finished:
        # A short job may finish before it was observed as running.
        assignment = job.status.assignment or place
    peaks = [a.peak_memory for a in plan.attempts if a.peak_memory]
    message = message[:_MAX_MESSAGE]
    effective = job.status.effective_priority
    if priority_cap is not None and not plan.phase.finished:
        effective = priority_cap if priority_cap < job.spec.priority else None
    changes = ConditionChanges(
        job.status.conditions, job.metadata.generation, now, readable=readable
    )
    _put_conditions(changes, job, plan.phase, reason, message, cap=effective)
    return SharedGPUJobStatus(
        observed_generation=job.metadata.generation,
        phase=plan.phase,
        reason=reason,
        message=message,
        queue_position=position if waiting else None,
        estimated_start=expected if waiting else None,
        conditions=changes.conditions,
        assignment=assignment,
        attempts=tuple(_cut(a) for a in plan.attempts),
        start_time=plan.start_time,
        completion_time=plan.completion_time,
        peak_memory=max(peaks, default=None),
        bypasses=bypasses or None if waiting else None,
        retry=plan.retry,
        retried_after=plan.retried_after,
        effective_priority=effective,
    )


def _cut(attempt: Attempt) -> Attempt:
    if len(attempt.message) <= _MAX_MESSAGE:
        return attempt
    # The end of a log is more useful than its beginning.
    return attempt.model_copy(update={"message": attempt.message[-_MAX_MESSAGE:]})


def _put_conditions(
    changes: ConditionChanges,
    job: SharedGPUJob,
    phase: Phase,
    reason: str,
    message: str,
    *,
    cap: int | None,
) -> None:
    present, put = {c.type for c in changes.conditions}, changes.put
    placed = phase in {Phase.ASSIGNED, Phase.RUNNING}
    if phase.finished:
        kind = "Complete" if phase is Phase.SUCCEEDED else "Failed"
        put(kind, holds=True, reason=reason or phase.value, message=message)
        put("Scheduled", holds=False, reason=phase.value)
    else:
        put(
            "Scheduled",
            holds=placed,
            reason="Assigned" if placed else reason or "Scheduling",
            message="" if placed else message,
        )
        if "Failed" in present:
            put("Failed", holds=False, reason="Retried")
    blocked = phase is Phase.QUEUED and stalled(reason)
    if blocked or "Stalled" in present:
        put(
            "Stalled",
            holds=blocked,
            reason=reason if blocked else "NotStalled",
            message=message if blocked else "",
        )
    if cap is not None:
        put("PriorityCapped", holds=True, reason="AboveMaxPriority", message=_capped(job, cap))
    elif "PriorityCapped" in present:
        put("PriorityCapped", holds=False, reason="WithinMaxPriority")


def _capped(job: SharedGPUJob, effective: int) -> str:
    return (
        f"spec.priority {job.spec.priority} counts as {effective}, the highest priority that "
        f"partition {job.spec.partition} allows namespace {job.metadata.namespace}: write "
        f"priority: {effective}, or have an administrator raise the partition's maxPriority or "
        "the maxPriority of the namespace's quota"
    )


def takes_back(old: SharedGPUJobStatus, new: SharedGPUJobStatus) -> bool:
    """Return whether a new status contradicts the recorded end of the job or of an attempt.

    Then it was computed before that end was written, perhaps by another operator. A finished job
    keeps its phase, except that a failed one is queued again for a new retry request. If there are
    many attempts, some of them may be left out (`attempts.trim`).
    """
    if old.phase is not None and old.phase.finished:
        retried = old.phase is Phase.FAILED and new.retry not in {"", old.retry}
        if retried == (new.phase is old.phase):
            return True
    ends = {attempt.number: attempt.outcome for attempt in new.attempts}
    trimmed = len(ends) >= MAX_ATTEMPTS_KEPT
    stand = [a for a in old.attempts if a.outcome and not (trimmed and a.number not in ends)]
    return any(ends.get(attempt.number) is not attempt.outcome for attempt in stand)


def keep_times(new: SharedGPUJobStatus, old: SharedGPUJobStatus) -> SharedGPUJobStatus:
    """Return a new status with the recorded times of all that the old status has, too.

    A status that was computed before the old one was written has later times: of a condition, of
    the end of an attempt and its first use of the GPU, which may be no later than the time at which
    they are computed, and of the completion.
    """
    since = {(c.type, c.status): c.last_transition_time for c in old.conditions}
    ended = {a.number: a for a in old.attempts if a.outcome is not None}
    update: dict[str, Any] = {
        "conditions": tuple(
            c.model_copy(
                update={
                    "last_transition_time": since.get((c.type, c.status), c.last_transition_time)
                }
            )
            for c in new.conditions
        ),
        "attempts": tuple(
            a
            if (was := ended.get(a.number)) is None
            else a.model_copy(
                update={"end_time": was.end_time, "first_use_time": was.first_use_time}
            )
            for a in new.attempts
        ),
    }
    if old.phase is new.phase and old.completion_time is not None:
        update["completion_time"] = old.completion_time
    return new.model_copy(update=update)


def same_status(
    one: SharedGPUJobStatus, other: SharedGPUJobStatus, *, but: Collection[str] = ()
) -> bool:
    """Return whether two statuses are equal, ignoring the time of the first use of a GPU."""
    if one == other:
        return True
    fields = (name for name in SharedGPUJobStatus.model_fields if name not in but)
    changed = [name for name in fields if getattr(one, name) != getattr(other, name)]
    return not changed or (changed == ["attempts"] and _but_first_use(one) == _but_first_use(other))


def _but_first_use(status: SharedGPUJobStatus) -> list[Attempt]:
    return [a.model_copy(update={"first_use_time": None}) for a in status.attempts]


def within(old: SharedGPUJobStatus, new: SharedGPUJobStatus, times: Times) -> float:
    """Return the seconds within which a change must be written."""
    if any(c.type == "Stalled" and c.status == "True" for c in new.conditions):
        return 0.0  # only a change of YAML can follow, so waiting saves no write
    if new.phase is Phase.ASSIGNED:
        return times.assigned_within
    before, after = ([a.outcome for a in status.attempts] for status in (old, new))
    if new.phase is Phase.RUNNING and [o for o in before if o] == [o for o in after if o]:
        return times.running_within
    if new.phase is Phase.QUEUED and before == after:
        return times.queued_within if old.phase is None else times.reason_within
    return 0.0
