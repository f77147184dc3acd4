"""Content of the page's lists: rows of jobs and workloads, pages of ended jobs, and namespaces.

Pure functions.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any, Final

from partita.claims.workload_view import WorkloadView, job_view
from partita.models import GPUPartition, Phase, SharedGPUJob
from partita.scheduling.namespace_shares import namespace_shares
from partita.scheduling.reasons import stalled
from partita.store.state import State

__all__ = [
    "ENDED",
    "ORDERS",
    "ended_counts",
    "ended_namespaces",
    "ended_page",
    "namespaces",
    "row_of",
    "seconds",
]

Entity = dict[str, Any]

ENDED: Final = {"finished": Phase.SUCCEEDED, "failed": Phase.FAILED}
"""The lists of ended jobs. They may have thousands of rows, so the page requests them on demand."""
PAGE_ROWS: Final = 50
"""Rows of one page of such a list."""

ORDERS: Final[dict[str, Callable[[SharedGPUJob], Any]]] = {
    "name": lambda job: job.key,
    "memory": lambda job: _memory(_ended_view(job)) or inf,
    "since": lambda job: -(seconds(job.status.completion_time) or 0),
}
"""Sort keys of the lists of ended jobs; a minus before the name of one is the opposite order."""


def row_of(view: WorkloadView) -> Entity:
    """Return the row of a job or workload that waits or has a slice."""
    place = view.place
    on = f"on {place.server}" if place is not None else ""
    return {
        "kind": "job",
        "list": "waiting" if view.waits else "running",
        "partition": view.partition,
        "position": view.position,
        "stuck": view.waits and stalled(view.reason),
        "namespace": view.namespace,
        "name": view.name,
        "asks": view.asks if view.waits else view.amount,
        "memory": _memory(view),
        "phase": str(view.phase),
        "reason": view.reason,
        "message": ": ".join(filter(None, [on, view.message])),
        "since": seconds(view.created if place is None else place.since),
        "starts": _starts_of(view),
        "workload": view.pod_of,
        "lasting": view.lasting,
        "idleSince": seconds(place.idle_since) if place is not None else None,
    }


def ended_counts(state: State, partition: str) -> dict[str, dict[str, int]]:
    """Return the numbers of jobs of a partition that finished and that failed, by namespace."""
    names = {phase: name for name, phase in ENDED.items()}
    counts: dict[str, Counter[str]] = {name: Counter() for name in ENDED}
    for job in state.jobs_of(partition):
        if job.status.phase in names:
            counts[names[job.status.phase]][job.metadata.namespace] += 1
    return {name: dict(sorted(counter.items())) for name, counter in counts.items()}


def ended_namespaces(state: State, partition: str) -> set[str]:
    """Return the namespaces that have ended jobs in a partition."""
    return {name for counts in ended_counts(state, partition).values() for name in counts}


def ended_page(
    state: State,
    partition: str,
    outcome: str,
    *,
    sees: Callable[[str], bool],
    text: str = "",
    order: str = "",
    offset: int = 0,
) -> Entity:
    """Return a page of the finished or the failed jobs of a partition.

    Parameters
    ----------
    outcome
        A key of `ENDED`.
    sees
        Returns whether the viewer may see the jobs of a namespace. Other jobs are not counted.
    text
        Only jobs are returned whose namespace, name, reason or message contain this text.
    order
        A key of `ORDERS`, possibly after a minus; empty for the latest first.
    offset
        Number of rows to skip.
    """
    found = [
        job
        for job in state.jobs_of(partition)
        if job.status.phase is ENDED[outcome] and sees(job.metadata.namespace)
        if text in f"{job.key} {job.status.reason} {job.status.message}".lower()
    ]
    found.sort(key=lambda job: job.key)
    found.sort(key=ORDERS[order.removeprefix("-") or "since"], reverse=order.startswith("-"))
    rows = found[offset : offset + PAGE_ROWS]
    return {"total": len(found), "offset": offset, "rows": [_ended_row(job) for job in rows]}


def _ended_row(job: SharedGPUJob) -> Entity:
    status, view = job.status, _ended_view(job)
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "asks": view.amount,
        "reason": status.reason,
        "message": status.message,
        "attempts": len(status.attempts),
        "since": seconds(status.completion_time),
    }


def _ended_view(job: SharedGPUJob) -> WorkloadView:
    attempts = job.status.attempts
    return job_view(job, attempts[-1] if attempts else None)


def _memory(view: WorkloadView) -> int | None:
    """Return the memory on all its GPUs; None for an unknown amount."""
    return view.memory and view.memory * view.gpus


def namespaces(state: State, partition: GPUPartition | None) -> list[Entity]:
    """Return each namespace with an allocation or a quota: its share, and what it may have."""
    if partition is None:
        return []
    found = []
    for name, one in namespace_shares(partition, state).items():
        dominant, quota = one.dominant, partition.spec.quota(name)
        found.append(
            {
                "namespace": name,
                "share": round(dominant.share, 3),
                "resource": dominant.resource,
                "memory": quota.memory if quota else None,
                "jobs": quota.jobs if quota else None,
                "usedMemory": one.held.amounts.memory,
                "usedJobs": one.held.jobs,
            }
        )
    return found


def _starts_of(view: WorkloadView) -> Entity | None:
    """Return when a job or workload is expected to start; None if it does not wait for room."""
    if (expected := view.expected) is None:
        return None
    return {
        "earliest": seconds(expected.earliest),
        "latest": seconds(expected.latest),
        "probability": expected.probability,
        "reason": expected.reason,
    }


def seconds(time: datetime | None) -> float | None:
    """Return a time as Unix time."""
    return time.timestamp() if time else None
