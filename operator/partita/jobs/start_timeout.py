"""When an attempt ends because its Pod does not start, or because its node is not ready.

The start timeout counts from the allocation. It stops while an init container runs, which is part
of the program, and restarts from the end of the last one. A Pod that is being deleted on
a node that is not ready ends its attempt as `NodeLost` after the same time.

The end of an attempt does not release its allocation: a kubelet that does not respond may still run
the containers. The allocation is kept, and the job does not start again, until the Pod object is
deleted. That happens once kubelet has confirmed the end, or once the Node object is deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from partita.jobs.attempts import Ending, JobContext
from partita.models import Attempt, Outcome, Phase
from partita.models.quantities import format_duration
from partita.store.views import PodView

__all__ = ["AttemptState", "attempt_state", "not_started", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class AttemptState:
    """The state of an attempt for the job's status, and when to update it."""

    phase: Phase
    reason: str = ""
    message: str = ""
    wake: datetime | None = None


def attempt_state(pod: PodView, attempt: Attempt, context: JobContext) -> AttemptState:
    """Return the state of an attempt whose Pod has not ended."""
    if (lost := _lost_at(pod, context)) is not None:
        said = f"{_unreachable(pod)}; the attempt ends as NodeLost at {lost:%H:%M:%S} UTC"
        return AttemptState(Phase.ASSIGNED, "NodeNotReady", said, lost)
    node_fails = bool(pod.node) and not context.node_ready(pod.node)
    startup = pod.startup
    if startup is None:
        if node_fails:
            said = f"node {pod.node} is not ready: nobody knows whether the program still runs"
            return AttemptState(Phase.RUNNING, "NodeNotReady", said)
        return AttemptState(Phase.RUNNING if pod.outcome.running else Phase.ASSIGNED)
    deadline = _start_deadline(pod, attempt, context)
    if pod.gated:
        return AttemptState(Phase.ASSIGNED, wake=deadline)
    reason, message = startup.reason, startup.message
    if node_fails:
        reason, message = "NodeNotReady", f"node {pod.node} is not ready; {message}"
    if deadline is not None:
        message = f"{message}. The attempt ends as NotStarted at {deadline:%H:%M:%S} UTC"
    return AttemptState(Phase.ASSIGNED, reason, message, deadline)


def not_started(
    pod: PodView, attempt: Attempt, context: JobContext, now: datetime
) -> Ending | None:
    """Return why an attempt must be ended because of its Pod or its node; else None."""
    if not pod.alive:
        return None
    lost = _lost_at(pod, context)
    if lost is not None and lost <= now:
        return Ending(Outcome.NODE_LOST, _unreachable(pod))
    deadline = _start_deadline(pod, attempt, context)
    if deadline is None or deadline > now or pod.startup is None:
        return None
    found = attempt_state(pod, attempt, context)
    said = f"no container started within {format_duration(context.start_timeout)}"
    why = f"node {pod.node} is not ready; " if found.reason == "NodeNotReady" else ""
    message = f"{said}: {why}{pod.startup.message}"
    return Ending(Outcome.NOT_STARTED, message, reason=found.reason)


def unconfirmed(pods: Sequence[PodView], context: JobContext) -> str:
    """Return a message if a Pod keeps an allocation after its attempt has ended; else empty."""
    for pod in pods:
        if pod.node and context.node_exists(pod.node) and not context.node_ready(pod.node):
            return (
                f"; its GPU stays allocated, because {_unreachable(pod)} and its program may "
                "still run. If the machine is off, delete the Node or taint it with "
                "node.kubernetes.io/out-of-service"
            )
    return ""


def _start_deadline(pod: PodView, attempt: Attempt, context: JobContext) -> datetime | None:
    startup, allocated = pod.startup, attempt.booked_time
    if startup is None or startup.running or allocated is None:
        return None
    begun = max(allocated, startup.since or allocated)
    return begun + timedelta(seconds=context.start_timeout)


def _lost_at(pod: PodView, context: JobContext) -> datetime | None:
    if pod.deletion_time is None or not pod.node or context.node_ready(pod.node):
        return None
    return pod.deletion_time + timedelta(seconds=context.start_timeout)


def _unreachable(pod: PodView) -> str:
    deleted = ", its Pod is being deleted" if pod.deleting else ""
    return f"node {pod.node} is not ready{deleted}, and kubelet does not confirm that it has ended"
