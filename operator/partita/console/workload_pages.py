"""Content of the page about workloads: rows of the list, and all data of one. Pure functions."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from partita.console.ask_policies import PolicyAnswer
from partita.console.explanation import explain_workload
from partita.constants import OTHERS_JOB
from partita.informer.state import State
from partita.reconcile.claims.workloads import all_workloads
from partita.reconcile.workload_view import WorkloadView

__all__ = ["answer_rows", "named_workload", "workload_in_full"]

Entity = dict[str, Any]


def named_workload(state: State, namespace: str, name: str) -> WorkloadView | None:
    """Return the workload whose Pod has this name, or its claim if it has no Pod."""
    views = (view for view in all_workloads(state) if view.namespace == namespace)
    return next((view for view in views if view.name == name), None)


def workload_in_full(
    view: WorkloadView, state: State, now: datetime, sees: Callable[[str], bool]
) -> Entity:
    """Return everything that the page of one workload shows, except its Events and its history.

    Parameters
    ----------
    sees
        Returns whether the viewer may see the names in a namespace.
    """
    found, place = explain_workload(view, state, now), view.place
    partition = state.partitions.get(view.partition)
    return {
        "namespace": view.namespace,
        "name": view.name,
        "pod": view.pod,
        "claim": view.claim,
        "partition": view.partition,
        "application": view.application,
        "lasting": view.lasting,
        "phase": view.phase,
        "reason": view.reason,
        "message": view.message,
        "position": view.position,
        "advice": found.advice,
        "settings": [[one.name, one.value, one.source] for one in found.settings],
        "memory": view.memory,
        "limit": view.memory_limit,
        "slice": view.slice,
        "threads": view.threads,
        "created": _seconds(view.created),
        "allocated": _seconds(place.since) if place is not None else None,
        "server": place.server if place is not None else "",
        "node": place.node if place is not None else "",
        "used": place.used if place is not None else None,
        "peak": place.peak if place is not None else None,
        "utilization": place.utilization if place is not None else None,
        "idleSince": _seconds(place.idle_since) if place is not None else None,
        "beside": _visible(found.beside, sees),
        "slowdown": found.slowdown.factor
        if found.slowdown is not None and found.slowdown.measured
        else None,
        "enforcement": found.enforcement,
        "exists": partition is not None,
    }


def answer_rows(answers: Sequence[PolicyAnswer], sees: Callable[[str], bool]) -> list[Entity]:
    """Return the policies' answers, with the names that the viewer may see."""
    return [
        {
            "policy": answer.policy,
            "role": answer.role,
            "decision": answer.decision,
            "gpus": list(answer.gpus),
            "beside": _visible(answer.beside, sees),
            "reason": answer.reason,
            "message": answer.message,
            "slowdown": answer.slowdown.factor
            if answer.slowdown is not None and answer.slowdown.measured
            else None,
        }
        for answer in answers
    ]


def _visible(names: Sequence[str], sees: Callable[[str], bool]) -> list[str]:
    """Return `namespace/name` of each, and one text for all that may not be seen."""
    seen = [name for name in names if sees(name.partition("/")[0])]
    return seen + ([OTHERS_JOB] if len(seen) < len(names) else [])


def _seconds(time: datetime | None) -> float | None:
    return time.timestamp() if time else None
