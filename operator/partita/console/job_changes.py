"""What people change about a job, by commands and in the console: suspend, resume, retry. Pure."""

from datetime import datetime
from typing import Any, Final, Literal

from partita.constants import ANNOTATION_RETRY
from partita.models import Phase, SharedGPUJob
from partita.models.quantities import format_time

__all__ = ["CHANGES", "JobChange", "change_patch", "possible_changes", "refusal"]

JobChange = Literal["suspend", "resume", "retry"]
CHANGES: Final[tuple[JobChange, ...]] = ("suspend", "resume", "retry")


def possible_changes(job: SharedGPUJob) -> list[JobChange]:
    """Return the changes that the state of a job allows."""
    return [change for change in CHANGES if not refusal(change, job)]


def refusal(change: JobChange, job: SharedGPUJob) -> str:
    """Return why the state of a job does not allow a change; empty if it does."""
    phase = job.status.phase
    if change == "retry":
        if phase is Phase.FAILED:
            return ""
        stands = phase.value if phase else "not reconciled yet"
        return f"{job.key} has not failed, it is {stands}: only a failed job can be retried"
    if phase is not None and phase.finished:
        return f"{job.key} has finished, it is {phase.value}: submit a new job"
    if change == "suspend" and job.spec.suspend:
        return f"{job.key} is already suspended: `partita resume {job.key}` queues it again"
    if change == "resume" and not job.spec.suspend:
        return f"{job.key} is not suspended: `partita explain {job.key}` shows its state"
    return ""


def change_patch(change: JobChange, now: datetime) -> dict[str, Any]:
    """Return the merge patch of a change."""
    if change == "retry":
        return {"metadata": {"annotations": {ANNOTATION_RETRY: format_time(now)}}}
    return {"spec": {"suspend": change == "suspend"}}
