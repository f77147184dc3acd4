"""Content of the page of one job or workload. Pure functions."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from partita.claims.workload_view import WorkloadPlace, job_view
from partita.claims.workloads import all_workloads, find_workloads
from partita.console.as_data import as_data
from partita.console.explanation import Explanation, explain, visible_names
from partita.console.lists import seconds
from partita.console.policy_answer import PolicyAnswer
from partita.models import SharedGPUJob
from partita.store.state import State

__all__ = ["answer_rows", "detail_of", "event_row", "named"]

Entity = dict[str, Any]

ATTEMPTS_SHOWN: Final = 50
"""Number of attempts of one job that are sent; the latest are chosen."""


def named(state: State, kind: str, namespace: str, name: str, now: datetime) -> Explanation | None:
    """Return what is known about a job or workload; None if there is none of this name.

    The name of a workload is that of its Pod, or of its claim if it has no Pod.
    """
    key = f"{namespace}/{name}"
    found = (
        (view for view in all_workloads(state) if view.key == key)
        if kind == "workload"
        else find_workloads(namespace, "SharedGPUJob", name, state)
    )
    return next((explain(view, state, now) for view in found), None)


def detail_of(found: Explanation, state: State, sees: Callable[[str], bool]) -> Entity:
    """Return everything that the page shows, except the Events and the history.

    Parameters
    ----------
    sees
        Returns whether the viewer may see the names in a namespace.
    """
    view, job = found.workload, found.job
    place = view.place or WorkloadPlace("", "", None)
    written = job_view(job) if job is not None else None
    if view.place is None and (job is None or job.spec.gpu_memory is None):
        written = view
    return {
        **as_data(view, seconds),
        **as_data(place, seconds),
        "exists": view.partition in state.partitions,
        "requested": written
        and {"memory": written.memory, "limit": written.memory_limit, "slice": written.slice},
        "beside": None if found.beside is None else visible_names(found.beside, sees),
        "settings": as_data(found.settings),
        "advice": found.advice,
        "slowed": found.slowed,
        "needs": found.needs,
        "enforcement": found.enforcement,
        **(as_data(_of_job(job, place), seconds) if job is not None else {}),
    }


def _of_job(job: SharedGPUJob, place: WorkloadPlace) -> Entity:
    """Return what a job has beyond a workload."""
    status = job.status
    return {
        "peak": max(filter(None, (status.peak_memory, place.peak)), default=None),
        "measured": place.peak,
        "uuids": status.assignment.gpus if status.assignment is not None else (),
        "processes": job.spec.processes,
        "started": status.start_time,
        "completed": status.completion_time,
        "attemptCount": len(status.attempts),
        "attempts": status.attempts[: -ATTEMPTS_SHOWN - 1 : -1],
    }


def event_row(event: Entity) -> Entity:
    """Return the fields of an Event that the page shows."""
    return {
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message", ""),
        "time": event.get("lastTimestamp") or event["metadata"].get("creationTimestamp", ""),
    }


def answer_rows(answers: Sequence[PolicyAnswer], sees: Callable[[str], bool]) -> list[Entity]:
    """Return the policies' answers, with the names that the viewer may see."""
    return [{**as_data(one), "beside": visible_names(one.beside, sees)} for one in answers]
