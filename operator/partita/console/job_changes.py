"""What people change about a job, by commands and in the console: suspend, resume, retry. Pure."""

from datetime import datetime
from typing import Any, Final, Literal

from partita.constants import ANNOTATION_RETRY
from partita.models.quantities import format_time

__all__ = ["CHANGES", "JobChange", "change_patch", "possible_changes", "refusal"]

JobChange = Literal["suspend", "resume", "retry"]
CHANGES: Final[tuple[JobChange, ...]] = ("suspend", "resume", "retry")


def possible_changes(phase: str, *, suspended: bool) -> list[JobChange]:
    """Return the changes that the state of a job allows, as for `refusal`."""
    return [change for change in CHANGES if not refusal(change, "", phase, suspended=suspended)]


def refusal(change: JobChange, key: str, phase: str, *, suspended: bool) -> str:
    """Return why the state of a job does not allow a change; empty if it does.

    Parameters
    ----------
    key
        Namespace and name of the job.
    phase
        Of its status; empty before it is reconciled.
    suspended
        Whether its spec says so.
    """
    if change == "retry":
        if phase == "Failed":
            return ""
        stands = phase or "not reconciled yet"
        return f"{key} has not failed, it is {stands}: only a failed job can be retried"
    if phase in {"Succeeded", "Failed"}:
        return f"{key} has finished, it is {phase}: submit a new job"
    if change == "suspend" and suspended:
        return f"{key} is already suspended: `partita resume {key}` queues it again"
    if change == "resume" and not suspended:
        return f"{key} is not suspended: `partita explain {key}` shows its state"
    return ""


def change_patch(change: JobChange, now: datetime) -> dict[str, Any]:
    """Return the merge patch of a change."""
    if change == "retry":
        return {"metadata": {"annotations": {ANNOTATION_RETRY: format_time(now)}}}
    return {"spec": {"suspend": change == "suspend"}}
