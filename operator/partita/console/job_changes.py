"""What people change about a job, by commands and in the console: suspend, resume, retry."""

from datetime import UTC, datetime
from typing import Any, Final, Literal

from partita.constants import ANNOTATION_RETRY
from partita.kube.client import JOBS, Kube
from partita.models.quantities import format_time

__all__ = ["CHANGES", "JobChange", "RefusedChangeError", "possible_changes", "write_change"]

JobChange = Literal["suspend", "resume", "retry"]
CHANGES: Final[tuple[JobChange, ...]] = ("suspend", "resume", "retry")


class RefusedChangeError(Exception):
    """The state of a job does not allow a change; the message says why."""


def possible_changes(phase: str, *, suspended: bool) -> list[JobChange]:
    """Return the changes that the state of a job allows, as for `_refusal`."""
    return [change for change in CHANGES if not _refusal(change, "", phase, suspended=suspended)]


async def write_change(kube: Kube, change: JobChange, job: dict[str, Any]) -> dict[str, Any]:
    """Change a job, as JSON, and return its new version.

    Raises
    ------
    RefusedChangeError
        Its state does not allow the change.
    ConflictError
        It was written after it was read.
    """
    meta, phase = job["metadata"], (job.get("status") or {}).get("phase") or ""
    name, namespace, version = meta["name"], meta["namespace"], meta["resourceVersion"]
    suspended = bool(job["spec"].get("suspend"))
    if why_not := _refusal(change, f"{namespace}/{name}", phase, suspended=suspended):
        raise RefusedChangeError(why_not)
    patch: dict[str, Any] = {"spec": {"suspend": change == "suspend"}}
    if change == "retry":
        patch = {"metadata": {"annotations": {ANNOTATION_RETRY: format_time(datetime.now(UTC))}}}
    return await kube.patch(JOBS, name, patch, namespace=namespace, resource_version=version)


def _refusal(change: JobChange, key: str, phase: str, *, suspended: bool) -> str:
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
