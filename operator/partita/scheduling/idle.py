"""Which workloads do not use their GPU, from the reports of the agents.

The agent reports since when no kernel of a Pod has run. A workload counts as idle once that is
longer ago than `idle.after` of its partition. SharedGPUJobs are never idle in this sense: they end
by themselves.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from partita.models import GPUServer
from partita.models.partition import GPUPartitionSpec
from partita.models.quantities import later

__all__ = ["evictable", "idle_at", "unused_since"]


def unused_since(uid: str, servers: Iterable[GPUServer]) -> datetime | None:
    """Return since when no kernel of a claim's Pod has run, by the node's clock.

    None if one ran in the last minute on any of its GPUs, and for a job.
    """
    times = [_unused_on(uid, server) for server in servers]
    known = [time for time in times if time is not None]
    return max(known, default=None) if len(known) == len(times) else None


def _unused_on(uid: str, server: GPUServer) -> datetime | None:
    used, entry = server.status.uses.get(uid), server.status.allocations.get(uid)
    return used.idle_since if used is not None and entry is not None and not entry.job else None


def idle_at(uid: str, servers: Iterable[GPUServer], partition: GPUPartitionSpec) -> datetime | None:
    """Return when a claim's Pod counts as idle, which may be in the past; None for never.

    Parameters
    ----------
    servers
        The GPUServers on which it is allocated.
    """
    since = unused_since(uid, servers)
    return None if partition.idle is None or since is None else later(since, partition.idle.after)


def evictable(
    servers: Iterable[GPUServer], partition: GPUPartitionSpec, now: datetime
) -> frozenset[str]:
    """Return the UIDs of the idle claims whose Pods may be evicted for others that wait.

    Parameters
    ----------
    servers
        The GPUServers of the partition.
    """
    if partition.idle is None or partition.idle.action != "Evict":
        return frozenset()
    holds = defaultdict[str, list[GPUServer]](list)
    for server in servers:
        for uid in server.status.allocations:
            holds[uid].append(server)
    ends = ((uid, idle_at(uid, theirs, partition)) for uid, theirs in holds.items())
    return frozenset(uid for uid, at in ends if at is not None and at <= now)
