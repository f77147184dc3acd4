"""Plans one claim from its current state: the claim, its Pods and its allocation in the ledger.

Level-triggered: the same state gives the same plan. So after a crash between any two writes, work
continues from there. The order of the writes makes that safe:

1. the entry in the ledger before the allocation in the claim, and that before the Pod's scheduling
   gate is removed;
2. the allocation in the claim is gone before its entry is removed from the ledger;
3. no entry is removed as long as a Pod can still use the GPU.

A claim of several GPUs has an entry in the ledger of each. It gets all or none: as long as an entry
lacks, none of them is allocated in the claim.

Others change claims too. kube-scheduler reserves an allocated claim for its Pod, and clears the
allocation if the Pod fits on another node only. kube-controller-manager clears it, or deletes the
claim, when the Pod has ended
(https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/). If it is
late, Partita clears it, so that the slice does not stay unused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from partita.claims.release_deadlines import release_marks
from partita.models import Allocation
from partita.pause import Pause
from partita.pods.termination import NO_GRACE
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita.times import Times

__all__ = [
    "CLEARED_WITHIN",
    "EACH_ITS_CLAIM",
    "TRIED_WITHIN",
    "ClaimContext",
    "ClaimPlan",
    "Eviction",
    "RefusedMemory",
    "plan_attempt_claim",
    "plan_claim",
]

EACH_ITS_CLAIM: Final = (
    "name a ResourceClaimTemplate in resourceClaimTemplateName, from which each Pod gets a claim"
)
"""What to write where several Pods name one claim."""

_NAMED: Final = 10
"""Most Pods whose names are in a message."""
TRIED_WITHIN: Final = timedelta(minutes=2)
"""The same time as `Times.bind_within` for a Pod that kube-scheduler has not tried since the
allocation, or for which it preempts others. A trial takes 0.1 s with an idle scheduler, and a Pod
has 30 s to end by default. Among many Pods that wait without the scheduling gate, a Pod is tried in
its turn, which took 73 s with 500 Pods on a busy machine. A shorter time would clear its allocation
before, and after each allocation that is cleared kube-scheduler tries all of them again
(`isSchedulableAfterClaimChange` in dynamicresources.go, see below)."""
CLEARED_WITHIN: Final = timedelta(seconds=2)
"""Time from the end of a Pod until its allocation is taken back if kube-controller-manager has not
cleared it. An assumption: it takes a fraction of a second if it has nothing else to do, and end
times of containers are whole seconds. With its limit on requests it took 17 s in the median in a
burst of 2,000 Jobs (docs/performance.md)."""
_UNALLOCATED: Final = "cannot allocate all claims"
"""Said by kube-scheduler of a Pod with a claim that is not allocated yet (dynamicresources.go in
pkg/scheduler/framework/plugins/dynamicresources, k8s.io/kubernetes v1.36.3)."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why the Pod of a claim must end."""

    reason: str
    """One word for programs."""
    message: str
    grace: int | None = None
    """Longest grace period in seconds; None for that of the Pod."""


_CLEARED: Final = Eviction("AllocationCleared", "the allocation of its claim was cleared")


@dataclass(frozen=True, slots=True)
class RefusedMemory:
    """With how much memory a Pod ran out of it."""

    namespace: str
    application: str
    memory: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """The state around a claim."""

    pods: Sequence[PodView] = ()
    """Its Pods: that for which it was made, or those that name it."""
    allocated: Mapping[str, Allocation] = field(default_factory=dict)
    """Its entries in the ledger, by GPUServer."""
    was_allocated: bool = False
    """Whether the claim was seen with the allocation of this entry."""
    may_start: bool = True
    """Whether the GPU of its entry takes jobs."""
    ending: Eviction | None = None
    """Why its Pod must end."""
    unaccounted: PodView | None = None
    """Its Pod, if it has started and the ledger has no entry for it under any claim."""
    uses_mps: bool = True
    unknown: bool = False
    """Whether a GPUServer of its partition cannot be read."""
    times: Times = Times()


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """Actions for a claim."""

    wants_gpu: bool = False
    """Whether to offer it to the policy."""
    why: WaitingReason | None = None
    """What is wrong with it."""
    allocate: bool = False
    """Whether to write its allocation, which the ledger has."""
    announce: bool = False
    """Whether its annotations say so before. What is said about a job is in the job's status."""
    restore: PodView | None = None
    """The Pod that uses its allocation, which the ledger lacks and must have again."""
    ungate: PodView | None = None
    """The Pod whose scheduling gate to remove."""
    take_back: bool = False
    """Whether to clear its allocation, which no Pod uses any more."""
    missed: bool = False
    """Whether it is taken back because no Pod was bound in time."""
    release: bool = False
    """Whether to remove it from the ledger."""
    evict: PodView | None = None
    """The Pod to evict."""
    eviction: Eviction | None = None
    """Why to evict it."""
    others: tuple[PodView, ...] = ()
    """Pods that name the claim, but are not the Pod that it is allocated for."""
    remember: RefusedMemory | None = None
    """What to add to the history of its application."""
    marks: Mapping[str, Allocation] = field(default_factory=dict)
    """Allocations to mark as releasing, by GPUServer."""
    wake: datetime | None = None
    """When to reconcile again even if nothing changes."""

    @property
    def writes(self) -> bool:
        """Whether something must be written to the claim, its Pod or its history."""
        written = self.restore or self.ungate or self.evict or self.remember
        return self.allocate or self.take_back or bool(written)


def plan_claim(claim: ClaimView | None, context: ClaimContext, now: datetime) -> ClaimPlan:
    """Return the plan for the claim of a Pod that belongs to no job.

    Parameters
    ----------
    claim
        None for one that is deleted.
    """
    alive = [pod for pod in context.pods if pod.alive]
    marks = release_marks(alive, context.allocated, now) if context.uses_mps else {}
    base = ClaimPlan(marks=marks)
    if claim is None:
        return replace(base, release=bool(context.allocated) and not alive)
    if claim.allocation is None:
        if context.allocated:
            return _in_ledger(claim, alive, context, base)
        if context.unaccounted is not None:
            # Its containers have started with an allocation that was cleared before the operator
            # saw the Pod on its node.
            return _evict(context.unaccounted, _CLEARED, base)
        return _unallocated(claim, alive, base)
    if not claim.allocation.ours:
        said = (
            f"driver {claim.allocation.driver} allocated it: only Partita's operator may allocate "
            f"class {claim.device_class}"
        )
        return replace(
            base, why=WaitingReason(Reason.INVALID_SPEC, said), release=bool(context.allocated)
        )
    return _allocated(claim, alive, context, base, now)


def plan_attempt_claim(
    claim: ClaimView, pods: Sequence[PodView], allocated: Mapping[str, Allocation]
) -> ClaimPlan:
    """Return the plan for the claim of a job's attempt that may start.

    Its end is planned by its job (`jobs.lifecycle`). If kube-scheduler has cleared the allocation
    of a Pod that is not bound, it is written again.
    """
    uids = {entry.pod_uid for entry in allocated.values()}
    pod = next((pod for pod in pods if pod.alive and {pod.uid} == uids), None)
    if pod is None or pod.node or pod.deleting or claim.deleting or len(allocated) != claim.count:
        return ClaimPlan()
    if claim.allocation is None:
        return ClaimPlan(allocate=True)
    return ClaimPlan(ungate=pod if pod.gated else None)


def _unallocated(claim: ClaimView, alive: Sequence[PodView], base: ClaimPlan) -> ClaimPlan:
    if claim.deleting:
        return base
    if claim.problem:
        return replace(base, why=WaitingReason(Reason.INVALID_SPEC, claim.problem))
    if len(alive) > 1:
        names = ", ".join(pod.name for pod in alive)
        who = f"Pods {names}" if len(alive) <= _NAMED else f"at least {len(alive)} Pods"
        said = f"{who} share it, and a claim is for one Pod: {EACH_ITS_CLAIM}"
        return replace(base, why=WaitingReason(Reason.INVALID_SPEC, said))
    if not alive:
        said = (
            "no Pod uses it: name it in spec.resourceClaims of a Pod, or use a "
            "ResourceClaimTemplate instead"
        )
        return (
            base if claim.owner_pod_uid else replace(base, why=WaitingReason(Reason.NO_POD, said))
        )
    if node := alive[0].node:
        said = (
            f"its Pod is on node {node} already, and kube-scheduler did not wait for this claim: "
            "leave spec.nodeName out of the Pod; if the claim was deleted while the Pod ran, "
            "delete the Pod"
        )
        return replace(base, why=WaitingReason(Reason.INVALID_SPEC, said))
    if alive[0].grace == 0 and not alive[0].deleting:
        return replace(base, why=WaitingReason(Reason.INVALID_SPEC, NO_GRACE))
    return replace(base, wants_gpu=_is_waiting(alive[0]))


def _is_waiting(pod: PodView) -> bool:
    """Return whether a Pod waits for nothing but its claims.

    A Pod with another scheduling gate, such as Kueue's, has not been admitted yet.
    """
    return not (pod.deleting or pod.other_gates)


def _in_ledger(
    claim: ClaimView, alive: Sequence[PodView], context: ClaimContext, base: ClaimPlan
) -> ClaimPlan:
    """Plan a claim that is in the ledger and has no allocation: not yet, or no longer."""
    entries = context.allocated.values()
    # A process that ended between two ledgers may have left a part of an earlier placement.
    placements = {(entry.pod_uid, entry.since) for entry in entries}
    pod = next((pod for pod in alive if all(pod.uid == uid for uid, _ in placements)), None)
    startable = (
        len(entries) == claim.count
        and len(placements) == 1
        and not context.was_allocated
        and not (claim.deleting or claim.problem)
        and context.may_start
        and context.ending is None
        and pod is not None
        and _is_waiting(pod)
    )
    if startable:
        return replace(base, allocate=True, announce=True)
    bound = next((pod for pod in alive if pod.node), None)
    if bound is None:
        return replace(base, release=True)
    # Somebody has cleared the allocation of a Pod that may run: it keeps its memory.
    return _evict(bound, context.ending or _CLEARED, base)


def _allocated(
    claim: ClaimView,
    alive: Sequence[PodView],
    context: ClaimContext,
    base: ClaimPlan,
    now: datetime,
) -> ClaimPlan:
    allocation = claim.allocation
    servers = allocation.gpu_servers if allocation else ()
    entries = [context.allocated[name] for name in servers if name in context.allocated]
    complete = len(entries) == len(servers)
    if context.unknown and not complete:
        return base  # its entry may be in the ledger that cannot be read
    ended = {pod.uid: pod.outcome.finished_at for pod in context.pods if not pod.alive}
    in_use = any(pod.node for pod in alive) or any(u not in ended for u in claim.reserved_for)
    theirs = {entry.pod_uid for entry in entries}
    others = tuple(pod for pod in alive if theirs and pod.uid not in theirs)
    pod = next((pod for pod in alive if not pod.deleting and pod not in others), None)
    base = replace(base, others=others)
    ending = context.ending
    if in_use:
        if pod is not None and ending is not None:
            return _evict(pod, ending, base)
        users = (pod for pod in alive if pod.node or pod.uid in claim.reserved_for)
        return base if complete else replace(base, restore=next(users, None))
    if claim.reserved_for:
        times = [time for uid in claim.reserved_for if (time := ended[uid]) is not None]
        until = max(times, default=now - CLEARED_WITHIN) + CLEARED_WITHIN
        return replace(base, take_back=True) if until <= now else replace(base, wake=until)
    if not complete or ending is not None or pod is None or claim.deleting:
        return replace(base, take_back=True)
    refused_within = timedelta(seconds=context.times.bind_within)
    within = refused_within if _is_refused(pod) else TRIED_WITHIN
    # An earlier operator may have written the ledger long before the allocation.
    known = [allocation.since] if allocation is not None and allocation.since is not None else []
    since = max([*known, *(entry.since for entry in entries)])
    tried = Pause.around(since, within)
    if not tried.holds(now):
        return replace(base, take_back=True, missed=True)
    return replace(base, ungate=pod if pod.gated else None, wake=tried.until)


def _is_refused(pod: PodView) -> bool:
    """Return whether kube-scheduler finds no node for a Pod although its claim is allocated."""
    startup = pod.startup
    if startup is None or startup.reason != "Unschedulable" or pod.nominated_node:
        return False
    return _UNALLOCATED not in startup.message


def _evict(pod: PodView, eviction: Eviction, base: ClaimPlan) -> ClaimPlan:
    return base if pod.deleting else replace(base, evict=pod, eviction=eviction)
