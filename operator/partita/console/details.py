"""Content of the page of one job or workload. Pure functions."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from partita.claims.workload_view import job_view
from partita.claims.workloads import all_workloads, find_workloads
from partita.console.explanation import Explanation, explain, visible_names
from partita.console.lists import seconds, starts_of
from partita.console.policy_answer import PolicyAnswer
from partita.console.slowdowns import Slowdown
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
    view, place, job = found.workload, found.workload.place, found.job
    written = job_view(job) if job is not None else None
    if place is None and (job is None or job.spec.gpu_memory is None):
        written = view
    return {
        "namespace": view.namespace,
        "name": view.name,
        "pod": view.pod,
        "claim": view.claim,
        "partition": view.partition,
        "exists": view.partition in state.partitions,
        "application": view.application,
        "lasting": view.lasting,
        "phase": str(view.phase),
        "reason": view.reason,
        "message": view.message,
        "position": view.position,
        "starts": starts_of(view),
        "advice": found.advice,
        "settings": [[one.name, one.value, one.source] for one in found.settings],
        "requested": written
        and {"memory": written.memory, "limit": written.memory_limit, "slice": written.slice},
        "allocated": view.memory if place is not None else None,
        "limit": view.memory_limit if place is not None else None,
        "threads": view.threads,
        "created": seconds(view.created),
        "since": seconds(place.since) if place is not None else None,
        "server": place.server if place is not None else "",
        "node": place.node if place is not None else "",
        "used": place.used if place is not None else None,
        "peak": place.peak if place is not None else None,
        "utilization": place.utilization if place is not None else None,
        "idleSince": seconds(place.idle_since) if place is not None else None,
        "beside": None if found.beside is None else visible_names(found.beside, sees),
        "slowed": found.slowed,
        "needs": found.needs,
        "enforcement": found.enforcement,
        **(_of_job(job, found) if job is not None else {}),
    }


def _of_job(job: SharedGPUJob, found: Explanation) -> Entity:
    """Return what a job has beyond a workload."""
    spec, status, place = job.spec, job.status, found.workload.place
    peak = place.peak if place is not None else None
    return {
        "peak": max(filter(None, (status.peak_memory, peak)), default=None),
        "uuids": list(status.assignment.gpus) if status.assignment is not None else [],
        "gpus": spec.gpus,
        "processes": spec.processes,
        "priority": spec.priority,
        "started": seconds(status.start_time),
        "completed": seconds(status.completion_time),
        "attemptCount": len(status.attempts),
        "attempts": [
            {
                "number": attempt.number,
                "pod": attempt.pod,
                "node": attempt.node,
                "servers": list(attempt.servers),
                "memory": attempt.memory,
                "limit": attempt.memory_limit,
                "peak": attempt.peak_memory if attempt.outcome else peak,
                "started": seconds(attempt.start_time),
                "ended": seconds(attempt.end_time),
                "outcome": str(attempt.outcome or ""),
                "reason": attempt.reason,
                "exitCode": attempt.exit_code,
                "message": attempt.message,
            }
            for attempt in reversed(status.attempts[-ATTEMPTS_SHOWN:])
        ],
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
    return [
        {
            "policy": answer.policy,
            "role": answer.role,
            "decision": answer.decision,
            "gpus": list(answer.gpus),
            "beside": visible_names(answer.beside, sees),
            "reason": answer.reason,
            "message": answer.message,
            "slowdown": _factor(answer.slowdown),
        }
        for answer in answers
    ]


def _factor(slowdown: Slowdown | None) -> float | None:
    return slowdown.factor if slowdown is not None and slowdown.measured else None
