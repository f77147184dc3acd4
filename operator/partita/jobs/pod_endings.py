"""Which Pods of a job are deleted, and which allocations are marked as releasing first.

The mark tells the agent to terminate the Pod's MPS clients before kubelet signals its programs
(`partita.pods.termination`). It is written before the operator deletes a Pod, and as soon as the
operator sees that somebody else has deleted one. A marked allocation keeps its memory until the Pod
is gone.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from partita.claims.release_deadlines import release_marks
from partita.jobs.attempts import JobContext
from partita.models import Allocation, Attempt, Outcome, SharingMode
from partita.models.quantities import later
from partita.store.views import PodView

__all__ = ["end_pods"]


def end_pods(
    attempts: Mapping[int, Attempt], over: Collection[int], context: JobContext, now: datetime
) -> tuple[tuple[PodView, ...], int | None, Mapping[str, Allocation]]:
    """Return which Pods of ended attempts to delete, and which allocations to mark first.

    Parameters
    ----------
    attempts
        The attempts in the job's status.
    over
        Numbers of those that have ended.

    Returns
    -------
    delete, grace, marks
        As in `Plan`: the Pods, their grace period in seconds, and the marked allocations to write,
        by GPUServer.
    """

    def stranded(pod: PodView) -> bool:
        return bool(pod.node) and not context.node_exists(pod.node)

    def too_slow(pod: PodView) -> bool:
        preempted = attempts[pod.attempt].outcome is Outcome.PREEMPTED
        return preempted and pod.grace > context.preemption_grace

    alive = [p for p in context.pods if p.alive]
    doomed = [
        p for p in alive if p.attempt in over and (not p.deleting or stranded(p) or too_slow(p))
    ]
    grace = context.preemption_grace if any(too_slow(p) for p in doomed) else None
    marks: dict[str, Allocation] = {}
    if context.mode is SharingMode.MPS:
        deadlines = {
            p.uid: later(now, p.grace if grace is None else grace)
            for p in doomed
            if p.node and not stranded(p)
        }
        marks = release_marks(alive, context.allocated, now, deadlines)
    marked_first = {a.pod_uid for a in marks.values()}
    delete = tuple(p for p in doomed if p.uid not in marked_first)
    if any(stranded(p) for p in delete):
        grace = 0  # no kubelet will confirm the deletion
    return delete, grace if delete else None, marks
