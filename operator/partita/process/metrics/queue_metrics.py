"""Numbers of jobs and claims of each partition, and why they wait. No I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import product
from math import inf
from typing import get_args

from prometheus_client import Metric

from partita.claims.workload_view import WorkloadPhase, WorkloadView
from partita.claims.workloads import workloads_of
from partita.metric import gauge
from partita.models import Phase
from partita.models.crd import RESOURCES
from partita.scheduling.namespace_shares import namespace_shares
from partita.scheduling.reasons import Reason, stalled
from partita.store.state import State
from partita_policies.amounts import GPUAmounts

__all__ = ["queue_metrics"]

_OTHER = "Other"
"""Replaces an unknown reason: another program wrote the status."""
_NOT_WAITING = {Reason.SUSPENDED, Reason.OUT_OF_MEMORY, Reason.ALLOCATED, Reason.IDLE}
_REASONS = {
    **{r.value: stalled(r) for r in Reason if r not in _NOT_WAITING},
    _OTHER: False,
}
"""Reasons why jobs wait, and whether only a change of YAML helps."""


def queue_metrics(state: State) -> Iterator[Metric]:
    """Yield the numbers of jobs and claims, and of objects that cannot be read."""
    jobs = state.finished.counts.copy()
    jobs.update((j.spec.partition, j.status.phase or Phase.QUEUED) for j in state.jobs.values())
    yield gauge(
        "partita_jobs",
        "Jobs, by phase.",
        ("partition", "phase"),
        {key: jobs[key] for key in product(state.partitions, Phase)},
    )
    there = {*state.partitions, *(one.name for one in state.unreadable.of("gpupartitions"))}
    yield gauge(
        "partita_jobs_without_partition",
        "Jobs whose partition does not exist.",
        (),
        {(): sum(count for (name, _), count in jobs.items() if name not in there)},
    )
    workloads = {name: workloads_of(name, state) for name in state.partitions}
    claims = Counter((name, claim.phase) for name in workloads for claim in workloads[name])
    yield gauge(
        "partita_claims",
        "ResourceClaims of Pods, by phase: Gated (another controller has not admitted the Pod), "
        "Queued, Assigned (allocated, and no container has run), Running or Ending.",
        ("partition", "phase"),
        {key: claims[key] for key in product(state.partitions, get_args(WorkloadPhase))},
    )
    reasons: Counter[tuple[str, str]] = Counter()
    since: dict[tuple[str], float] = {}
    for name in state.partitions:
        for reason, time in _waiting(name, workloads[name], state):
            reasons[name, reason] += 1
            if time is not None and not _REASONS[reason]:
                since[name,] = min(since.get((name,), inf), time.timestamp())
    yield gauge(
        "partita_queue_jobs",
        "Jobs and claims that wait for a GPU, by the reason in their status. The sum is the length "
        "of the queue.",
        ("partition", "reason"),
        {key: reasons[key] for key in product(state.partitions, _REASONS)},
    )
    yield gauge(
        "partita_queue_oldest_timestamp_seconds",
        "Time since when the oldest job or claim waits, without those that can never start as they "
        "are. Absent if none waits.",
        ("partition",),
        since,
    )
    yield gauge(
        "partita_namespace_share_ratio",
        "Share of the memory, places and MPS clients of the GPUs that a namespace has "
        "allocated, from 0 to 1. The largest is its dominant share, which orders the queue.",
        ("partition", "workload_namespace", "resource"),
        {
            (name, namespace, resource): amount / most if most else 0.0
            for name, partition in state.partitions.items()
            for namespace, share in namespace_shares(partition, state).items()
            for resource, amount, most in zip(
                GPUAmounts._fields, share.held.amounts, share.capacity, strict=True
            )
        },
    )
    none = {(resource.plural, ""): 0 for resource in RESOURCES}
    yield gauge(
        "partita_unreadable_objects",
        "Objects that cannot be read, by the first invalid field. The operator continues with what "
        "it last read of them.",
        ("resource", "field"),
        none | Counter((one.plural, one.field) for one in state.unreadable),
    )


def _waiting(
    partition: str, workloads: Iterable[WorkloadView], state: State
) -> Iterator[tuple[str, datetime | None]]:
    """Yield why, and since when, each claim and each job waits."""
    found = [(one.reason, one.created) for one in workloads if one.phase == "Queued"]
    for uid in state.job_index.unfinished.of(partition):
        if not state.is_allocated(uid):
            job = state.jobs[uid]
            attempts = job.status.attempts
            since = attempts[-1].end_time if attempts else job.metadata.creation_timestamp
            found.append((job.status.reason or Reason.SCHEDULING, since))
    for reason, since in found:
        yield (reason if reason in _REASONS else _OTHER), since
