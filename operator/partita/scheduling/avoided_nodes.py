"""Nodes that a job avoids for some time, because its Pod did not start there.

They are derived from the attempts in the job's status, so they survive a restart of the operator. A
node is only avoided as long as another node could run the job.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from partita.models import Attempt, Outcome
from partita.scheduling.node_fit import Host, NodeFit
from partita_policies.types import Job

__all__ = ["AVOIDED_FOR", "avoided_nodes", "avoided_until", "avoids_all", "without"]

AVOIDED_FOR = timedelta(minutes=10)
"""Time from the attempt's end. An assumption: about the time to repair a node or to download a
large image."""
_SAME_ON_EVERY_NODE = frozenset(
    {"CreateContainerConfigError", "InvalidImageName", "NotScheduled", "SchedulingGated"}
)
"""Reasons that are the same on every node."""


def avoided_nodes(attempts: Sequence[Attempt], now: datetime) -> frozenset[str]:
    """Return the nodes on which a job's Pods recently did not start because of the node."""
    return frozenset(a.node for a in attempts if _until(a, now) is not None)


def avoided_until(attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    """Return when the first of these nodes is no longer avoided; None if none is avoided."""
    return min(
        (until for until in (_until(a, now) for a in attempts) if until is not None), default=None
    )


def without(avoided: Collection[str], found: NodeFit, job: Job) -> frozenset[str]:
    """Return the nodes that a job may use: without the avoided ones, if others remain.

    Parameters
    ----------
    found
        The nodes that could run its Pod.
    job
        Its request for the GPUs of one node.

    Returns
    -------
    frozenset of str
        Names of nodes; empty for all nodes of the partition.
    """
    able = _able(found.largest.hosts, job)
    left = able.difference(avoided)
    return frozenset(left) if left and left != able else found.nodes


def avoids_all(avoided: Collection[str], hosts: Iterable[Host], job: Job) -> bool:
    """Return whether every node that could run a job is avoided.

    Parameters
    ----------
    hosts
        The nodes of the partition.
    job
        Its request, with the nodes that it may use.
    """
    able = {name for name in _able(hosts, job) if not job.nodes or name in job.nodes}
    return bool(able) and able.issubset(avoided)


def _able(hosts: Iterable[Host], job: Job) -> set[str]:
    """Return the nodes whose GPUs are large enough for a job."""
    return {
        host.name
        for host in hosts
        if host.memory >= job.memory
        and host.gpus >= job.gpus
        and not 0 < host.clients < job.clients
    }


def _until(attempt: Attempt, now: datetime) -> datetime | None:
    """Return until when the attempt's node is avoided; None if it is not."""
    if not attempt.node or attempt.end_time is None or attempt.end_time > now:
        return None
    if attempt.outcome is Outcome.NOT_STARTED:
        caused = attempt.reason not in _SAME_ON_EVERY_NODE
    else:
        # The reason is set if kubelet rejected the Pod.
        never_ran = attempt.outcome is Outcome.EVICTED and attempt.start_time is None
        caused = never_ran and bool(attempt.reason)
    until = attempt.end_time + AVOIDED_FOR
    return until if caused and until > now else None
