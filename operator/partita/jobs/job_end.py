"""When a job has finished: with its last attempt, at a limit of its retries, or at its deadline."""

from collections.abc import Sequence
from datetime import datetime

from partita.jobs.attempts import why_ended
from partita.jobs.system_failures import too_many
from partita.models import Attempt, Outcome, Phase, SharedGPUJob
from partita.models.quantities import later

__all__ = ["deadline_of", "end_of", "too_long"]


def deadline_of(job: SharedGPUJob, start_time: datetime | None) -> datetime | None:
    """Return when a job has run long enough; None if it has no deadline or has not started."""
    seconds = job.spec.active_deadline_seconds
    if seconds is None or start_time is None:
        return None
    return later(start_time, seconds)


def too_long(job: SharedGPUJob) -> str:
    """Return a message about a job that has reached its deadline."""
    return f"it ran longer than activeDeadlineSeconds ({job.spec.active_deadline_seconds})"


def end_of(
    job: SharedGPUJob,
    attempts: Sequence[Attempt],
    nothing_larger: str,
    start_time: datetime | None,
    now: datetime,
) -> tuple[Phase, str, str] | None:
    """Return phase, reason and message if the job has finished; else None."""
    status = job.status
    if status.phase is not None and status.phase.finished:
        return status.phase, status.reason, status.message
    if not attempts or attempts[-1].outcome is None:
        return None
    last = attempts[-1]
    if last.outcome is Outcome.SUCCEEDED:
        return Phase.SUCCEEDED, "Succeeded", ""
    if last.outcome is Outcome.DEADLINE_EXCEEDED:
        return Phase.FAILED, "DeadlineExceeded", last.message
    found = _limit_reached(job, attempts)
    if found is None and nothing_larger:
        found = "OutOfMemory", f"{nothing_larger}; {why_ended(last)}"
    deadline = deadline_of(job, start_time)
    if found is None and deadline is not None and deadline <= now and not job.spec.suspend:
        found = "DeadlineExceeded", too_long(job)
    return (Phase.FAILED, *found) if found else None


def _limit_reached(job: SharedGPUJob, attempts: Sequence[Attempt]) -> tuple[str, str] | None:
    """Return reason and message if the last attempt reached a limit; else None."""
    last, retry = attempts[-1], job.spec.retry
    times = sum(a.outcome is last.outcome for a in attempts)
    if last.outcome is Outcome.FAILED and times > retry.limit:
        said = f"it failed {times} times (retry.limit: {retry.limit}); {why_ended(last)}"
        return "RetryLimitExceeded", said
    if last.outcome is Outcome.OUT_OF_MEMORY and times > retry.out_of_memory.limit:
        said = (
            f"it ran out of GPU memory {times} times "
            f"(retry.outOfMemory.limit: {retry.out_of_memory.limit}); {why_ended(last)}"
        )
        return "OutOfMemory", said
    if last.outcome is Outcome.SYSTEM_FAILURE and too_many(attempts):
        said = (
            f"it had {times} system failures, which are not its own: see whether its GPU's server "
            f"is healthy, then set the annotation partita.dev/retry; {why_ended(last)}"
        )
        return "SystemFailure", said
    if last.outcome is Outcome.NOT_STARTED and times > retry.not_started.limit:
        said = (
            f"its Pod did not start {times} times "
            f"(retry.notStarted.limit: {retry.not_started.limit}); {why_ended(last)}"
        )
        return "NotStarted", said
    return None
