"""Which nodes a job avoids for a while, because its Pod did not start there.

This follows from the attempts in the job's status, so it survives a restart of the operator. A
node is only avoided as long as another one could run the job.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from partita.models import Attempt, Outcome
from partita.reconcile.node_fit import NodeFit
from partita_policies.types import Job

__all__ = ["AVOIDED_FOR", "avoided_nodes", "avoided_until", "without"]

AVOIDED_FOR = timedelta(minutes=10)
"""Counted from the attempt's end. An assumption: about as long as a node needs to be repaired or
to download a large image."""
_SAME_ON_EVERY_NODE = frozenset(
    {"CreateContainerConfigError", "InvalidImageName", "NotScheduled", "SchedulingGated"}
)
"""Reasons that another node does not change."""


def avoided_nodes(attempts: Sequence[Attempt], now: datetime) -> frozenset[str]:
    """Return the nodes on which a job's Pods did not start for a reason of the node."""
    return frozenset(a.node for a in attempts if _until(a, now) is not None)


def avoided_until(attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    """Tell when the first of these nodes is no longer avoided; None if none is."""
    return min(
        (until for until in (_until(a, now) for a in attempts) if until is not None), default=None
    )


def without(avoided: Collection[str], found: NodeFit, job: Job) -> frozenset[str]:
    """Return the nodes that a job may use: without the avoided ones, if that leaves any.

    Parameters
    ----------
    found
        The nodes that could run its Pod.
    job
        What it asks of the GPUs of one node.

    Returns
    -------
    frozenset of str
        Their names; empty: all of the partition's.
    """
    able = {
        host.name
        for host in found.largest.hosts
        if host.memory >= job.memory
        and host.gpus >= job.gpus
        and not 0 < host.clients < job.clients
    }
    left = able.difference(avoided)
    return frozenset(left) if left and left != able else found.nodes


def _until(attempt: Attempt, now: datetime) -> datetime | None:
    """Tell until when the attempt's node is avoided; None if it is not."""
    if not attempt.node or attempt.end_time is None or attempt.end_time > now:
        return None
    if attempt.outcome is Outcome.NOT_STARTED:
        caused = attempt.reason not in _SAME_ON_EVERY_NODE
    else:
        # With the reason of kubelet, which did not let the Pod start.
        never_ran = attempt.outcome is Outcome.EVICTED and attempt.start_time is None
        caused = never_ran and bool(attempt.reason)
    until = attempt.end_time + AVOIDED_FOR
    return until if caused and until > now else None
