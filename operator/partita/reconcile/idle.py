"""Which workloads do not use their GPU, from the reports of the agents.

The agent reports since when no kernel of a Pod has run. A workload counts as idle once that is
longer ago than `idle.after` of its partition. SharedGPUJobs are never idle in this sense: they end
by themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from partita.models import GPUServer
from partita.models.partition import GPUPartitionSpec
from partita.models.quantities import later

__all__ = ["IdleWorkload", "evictable", "idle_at", "idle_workloads", "unused_since"]


@dataclass(frozen=True, slots=True)
class IdleWorkload:
    """A Pod with a claim that has not used its GPU for `idle.after` of its partition."""

    uid: str
    """UID of the claim."""
    gpu_server: str
    since: datetime
    """Since when none of its kernels has run."""


def unused_since(uid: str, server: GPUServer) -> datetime | None:
    """Return since when no kernel of a claim's Pod has run, by the node's clock.

    None if one ran in the last minute, and for a job.
    """
    usage, entry = server.status.usage, server.status.allocations.get(uid)
    used = usage.jobs.get(uid) if usage is not None else None
    return used.idle_since if used is not None and entry is not None and entry.is_claim else None


def idle_at(uid: str, server: GPUServer, partition: GPUPartitionSpec) -> datetime | None:
    """Return when a claim's Pod counts as idle, which may be in the past; None for never."""
    since = unused_since(uid, server)
    return None if partition.idle is None or since is None else later(since, partition.idle.after)


def idle_workloads(
    servers: Iterable[GPUServer], partition: GPUPartitionSpec, now: datetime
) -> list[IdleWorkload]:
    """Return the idle workloads on some GPUs of a partition, those that are idle longest first."""
    found = [
        IdleWorkload(uid, server.metadata.name, since)
        for server in servers
        for uid in server.status.allocations
        if (at := idle_at(uid, server, partition)) is not None
        and at <= now
        and (since := unused_since(uid, server)) is not None
    ]
    return sorted(found, key=lambda idle: (idle.since, idle.uid))


def evictable(
    servers: Iterable[GPUServer], partition: GPUPartitionSpec, now: datetime
) -> frozenset[str]:
    """Return the UIDs of the idle claims whose Pods may be evicted for others that wait."""
    evicts = partition.idle is not None and partition.idle.action == "Evict"
    return frozenset(idle.uid for idle in idle_workloads(servers, partition, now) if evicts)
