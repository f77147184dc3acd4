"""Reconciles claims: plans each claim, and records which claims wait and why.

It only reads `State` and adds to its queues; the loop carries out the plans. Claims wait in the
same queues as jobs (`scheduling.demand`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from partita.claims.actions import Actions, PlacementDetails
from partita.claims.claim_context import context_of
from partita.claims.claim_lifecycle import (
    ClaimPlan,
    Eviction,
    RefusedMemory,
    plan_claim,
)
from partita.claims.claim_record import ClaimRecord, WrittenStatus
from partita.claims.pod_claims import second_claim, why_not_alone
from partita.claims.rejecting_nodes import RejectingNodes
from partita.claims.surge import Holder, explain_surge, holders
from partita.models import Allocation, EstimatedStart
from partita.models.device_class import ClassTarget, class_target
from partita.models.events import UserEvent
from partita.pause import Pause
from partita.scheduling.allocated_claim import allocated_why, growth_of, refused_memory
from partita.scheduling.avoided_nodes import avoids_all
from partita.scheduling.claim_request import application_of, request_of_claim
from partita.scheduling.cycle_result import Explained
from partita.scheduling.demand import Demand
from partita.scheduling.gpu_state import drain_deadline, times_of
from partita.scheduling.idle import idle_at, unused_since
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.request import Request
from partita.store.state import State
from partita.store.views import PodView
from partita.times import Times
from partita_policies.types import Job

__all__ = ["ClaimReconciler"]


@dataclass
class ClaimReconciler:
    """Plans every claim, and records which claims wait for GPUs and which release them.

    Parameters
    ----------
    state
        The state that the watches update. `reconcile` reads it again for each claim.
    demand
        The demand of the jobs too, with which that of the claims is queued.
    times
        When a claim is tried again, and when its status is written.
    on_seen
        Called with the UID of each claim that is reconciled, and the time.
    """

    state: State
    demand: Demand
    times: Times = Times()
    on_seen: Callable[[str, datetime], None] = lambda *_: None

    def __post_init__(self) -> None:
        self._records: dict[str, ClaimRecord] = {}
        self._rejecting = RejectingNodes()
        self._holders_of: dict[str, dict[str, Holder]] = {}
        """Pods with allocations by their controller, as of the cycle of `_holders_in`."""
        self._holders_in: datetime | None = None

    # Reports of other components.

    def end(self, uid: str, eviction: Eviction) -> None:
        """Request the end of a claim's Pod."""
        self.record(uid).ending = eviction

    def not_evicted(self, uid: str, now: datetime) -> None:
        """Record that the Pod of a claim was not evicted, because it is protected."""
        record = self.record(uid)
        record.ending, record.protected = None, Pause.of(now, self.times.protected)
        self.state.queues.partitions.add(record.partition)

    def not_grown(self, uid: str, why: str) -> None:
        """Record why a claim that ran out of memory has not got more in a cycle."""
        record = self._records.get(uid)
        if record is not None and record.not_grown != why:
            record.not_grown = why
            self.state.queues.jobs.add(uid)

    def placed(self, uid: str) -> None:
        """Record that a GPU is being allocated for a claim."""
        record = self.record(uid)
        self.demand.waiting[record.partition].pop(uid, None)
        record.allocated_since = None
        record.stops_waiting()  # the write of its allocation says that it has one

    def explain(self, uid: str, found: Explained) -> None:
        """Record why a claim waits after a cycle."""
        record, why = self._records.get(uid), found.why
        if record is None or record.why is why:
            return
        if record.not_bound:
            why = WaitingReason(
                why.reason, f"{why.message}; its Pod was not bound: {record.not_bound}"
            )
        if record.pod is not None:
            why = explain_surge(why, record.pod, partial(self._holders, record.pod, found.time))
        record.why, record.position = why, found.position
        if record.is_outdated:
            self.state.queues.claim_statuses.add(uid)

    def _holders(self, pod: PodView, cycle: datetime) -> dict[str, Holder]:
        """Return the holders among the Pods of a Pod's controller; found once in a cycle."""
        if self._holders_in != cycle:
            self._holders_in, self._holders_of = cycle, {}
        key = f"{pod.namespace}/{pod.workload.controller}"
        if key not in self._holders_of:
            beside = self.state.pods_beside(pod)
            self._holders_of[key] = holders((o, self.state.allocated(c)) for o, c in beside)
        return self._holders_of[key]

    def expect(self, uid: str, expected: EstimatedStart | None) -> None:
        """Record when a waiting claim is expected to be allocated."""
        record = self._records.get(uid)
        if record is not None and record.expected != expected:
            record.expected = expected
            self.state.queues.claim_statuses.add(uid)

    # Queries of other components.

    def expected(self, uid: str) -> EstimatedStart | None:
        """Return when a waiting claim is expected to be allocated, if that is known."""
        record = self._records.get(uid)
        return record.expected if record is not None else None

    def has(self, uid: str) -> bool:
        """Return whether a UID is that of a claim, or of one that is deleted."""
        known = (self._records, self.state.claims, self.state.allocated_claims())
        return any(uid in uids for uids in known)

    def pod_of(self, uid: str) -> PodView | None:
        """Return the Pod of a claim that is the first to use it."""
        pods = [pod for pod in self.state.pods_of(uid) if pod.alive]
        allocated = {a.pod_uid for a in self.state.allocated(uid).values()}
        return next((pod for pod in pods if pod.uid in allocated), pods[0] if pods else None)

    def pod_for(self, asks: Job, _gpus: Sequence[str]) -> PodView | None:
        """Return the Pod that gets the GPUs of a placed claim."""
        return self.pod_of(asks.id)

    def placement_events(self, _uid: str, placed: PlacementDetails) -> Iterable[UserEvent]:
        """Return the Events about the GPUs that a claim has got."""
        by = "predicted slowdown" if placed.job.lasting else f"policy {placed.policy}"
        said = f"{placed.amount} on {placed.where}, chosen by {by}"
        return (UserEvent("SliceAllocated", said, placed.pod.subject),)

    def protected(self, partition: str, now: datetime) -> frozenset[str]:
        """Return the UIDs of claims whose Pods a budget has just protected from eviction."""
        return frozenset(
            uid
            for uid in self._records.keys() & self.state.allocated_claims()
            if (record := self._records[uid]).partition == partition
            and record.protected is not None
            and record.protected.holds(now)
        )

    def grown_request(self, uid: str) -> Job | None:
        """Return what a claim asks for because its application ran out of memory.

        None if it never did, or if the request cannot be met.
        """
        claim, pod = self.state.claims[uid], self.pod_of(uid)
        if pod is None:
            return None
        refused = self.state.profiles.refused(claim.namespace, application_of(pod.workload))
        asks = self._grown(uid, refused) if refused else None
        return asks if isinstance(asks, Job) else None

    def why(self, uid: str) -> WaitingReason | None:
        """Return why a claim waits; None if it does not, or the reason is not known yet."""
        record = self._records.get(uid)
        return record.why if record is not None else None

    def status(self, uid: str, now: datetime) -> WrittenStatus | None:
        """Return why a claim waits if that must be written now; None for no write."""
        record = self._records.get(uid)
        if record is None or uid not in self.state.claims:
            return None
        shown = record.show(now)
        if shown is None and record.is_near and record.is_outdated:
            # Perhaps no cycle follows: else the positions would have a gap for ever.
            self.state.queues.claim_statuses.add_after(uid, self.times.refresh)
        return shown

    def repeat_status(self, uid: str, after: float = 0.0) -> None:
        """Let why a claim waits be written again some seconds after a write that has failed."""
        if uid in self._records:
            self._records[uid].written = None
            self.state.queues.claim_statuses.add_after(uid, after)

    # Reconciliation.

    def actions(self, uid: str, now: datetime) -> Actions:
        """Plan one claim again, and return what to do."""
        self.on_seen(uid, now)
        plan = self.reconcile(uid, now)
        return Actions(writes=plan.writes, wake=self.requeue_at(uid, now))

    def reconcile(self, uid: str, now: datetime) -> ClaimPlan:
        """Plan one claim again, and add it to those that wait or remove it."""
        record = self.record(uid)
        with self.demand.changing(uid, lambda: record.partition):
            plan = record.plan = self._plan(uid, record, now)
        if uid not in self.state.claims and not self.state.allocated(uid):
            del self._records[uid]
            self.state.queues.claim_statuses.add(uid)  # nothing is kept there, either
        return plan

    plan_claim = reconcile

    def requeue_at(self, uid: str, now: datetime) -> datetime | None:
        """Return when the claim must be reconciled again even if nothing changes."""
        record = self._records.get(uid)
        if record is None:
            return None
        times = [drain_deadline(server, self.state) for server in self.state.allocated(uid)]
        times += [record.plan.wake, record.avoided_until(now)]
        times.append(record.protected.until if record.protected else None)
        return min((t for t in times if t is not None and t > now), default=None)

    def record(self, uid: str) -> ClaimRecord:
        """Return what is known of a claim besides the state. Other components add to it."""
        return self._records.setdefault(uid, ClaimRecord(self.times))

    def _target(self, uid: str) -> ClassTarget | None:
        claim = self.state.claims.get(uid)
        return class_target(claim.device_class, self.state.partitions) if claim else None

    def _plan(self, uid: str, record: ClaimRecord, now: datetime) -> ClaimPlan:
        state = self.state
        claim, target = state.claims.get(uid), self._target(uid)
        allocated = state.allocated(uid)
        if target is not None:
            record.partition = target.partition
        self._note_allocation(uid, record, now)
        for pod in state.pods_of(uid):
            self._rejecting.note(pod)
        plan = plan_claim(claim, context_of(uid, record, state, now), now)
        plan = record.without_repeated_eviction(plan, now)
        if plan.missed:
            self._avoid(uid, record, allocated, now)
        if allocated and not plan.marks:
            plan = self._examine(uid, record, plan, now)
        if plan.release and plan.remember is None:
            self.demand.release(uid)
        self.demand.mark(uid, plan.marks)
        if plan.others:
            self.state.queues.claim_statuses.add(uid)
        if not allocated and claim is not None and claim.allocation is None:
            record.ending = None
        if record.protected is not None and not record.protected.holds(now):
            record.protected = None
            state.queues.partitions.add(record.partition)
        if plan.why is not None:
            self._show(uid, record, plan.why)
        elif plan.wants_gpu:
            self._enqueue(uid, record, now)
        elif claim is None or claim.allocation is None:
            record.stops_waiting()
        return plan

    def _examine(self, uid: str, record: ClaimRecord, plan: ClaimPlan, now: datetime) -> ClaimPlan:
        """Plan what the use of an allocated slice calls for, and record what its status says."""
        allocated, claim = self.state.allocated(uid), self.state.claims.get(uid)
        servers = [self.state.servers[name] for name in allocated]
        name, entry = next(iter(allocated.items()))
        pod = next((p for p in self.state.pods_of(uid) if p.uid == entry.pod_uid), None)
        if pod is None:
            return plan
        refused = max(refused_memory(uid, pod.workload, s, self.times) for s in servers)
        application = application_of(pod.workload)
        known = self.state.profiles.refused(entry.namespace, application)
        if refused > known and not record.not_remembered:
            found = RefusedMemory(entry.namespace, application, refused)
            plan = replace(plan, remember=found)
        if claim is None or claim.allocation is None or not pod.alive or pod.deleting:
            return plan
        growth = None
        if refused:
            asks = self._grown(uid, max(refused, known))
            growth = growth_of(entry, name, asks, pod.workload)
        if growth is not None:
            self.demand.growths[record.partition][uid] = growth
        else:
            record.not_grown = ""
        idle = idle_at(uid, servers, times_of(record.partition, self.state))
        self._note_idle(record, idle=idle is not None and idle <= now)
        why = allocated_why(
            servers,
            entry,
            refused=refused,
            growth=growth,
            not_grown=record.not_grown,
            idle_since=unused_since(uid, servers) if record.idle else None,
        )
        self._show(uid, record, why)
        return plan if idle is None or plan.wake is not None else replace(plan, wake=idle)

    def _note_idle(self, record: ClaimRecord, *, idle: bool) -> None:
        """Record whether a Pod is idle; then others may get its memory."""
        if idle and not record.idle:
            self.state.queues.partitions.add(record.partition)
        record.idle = idle

    def _note_allocation(self, uid: str, record: ClaimRecord, now: datetime) -> None:
        """Record that a claim has the allocation of its entry, or that it was cleared."""
        claim, allocated = self.state.claims.get(uid), self.state.allocated(uid)
        entry = next(iter(allocated.values()), None)
        if claim is None or entry is None:
            return
        if claim.allocation is not None and allocated.keys() & {*claim.allocation.gpu_servers}:
            record.allocated_since = entry.since
            if claim.reserved_for:
                record.not_bound = ""
        elif record.allocated_since == entry.since and not record.plan.take_back:
            pods = self.state.pods_of(uid)
            if any(pod.alive and not pod.deleting for pod in pods):
                self._avoid(uid, record, allocated, now)

    def _avoid(
        self, uid: str, record: ClaimRecord, allocated: dict[str, Allocation], now: datetime
    ) -> None:
        pod = self.pod_of(uid)
        waits = pod.startup if pod is not None else None
        words = waits.message if waits is not None and waits.reason == "Unschedulable" else ""
        for server in allocated:
            record.avoid(self.state.servers[server].status.node, words, now)

    def _show(self, uid: str, record: ClaimRecord, why: WaitingReason) -> None:
        record.why, record.position, record.expected = why, None, None
        queue = self.state.queues.claim_statuses
        if why.reason is Reason.SCHEDULING:
            queue.add_after(uid, self.times.scheduling_within)
        else:
            queue.add(uid)

    def _enqueue(self, uid: str, record: ClaimRecord, now: datetime) -> None:
        if (pod := self.pod_of(uid)) is not None:
            record.avoid_rejecting(self._rejecting.of(pod, now))
        record.pod = pod
        request, avoided = self._request(uid), record.avoided_nodes(now)
        if isinstance(request, WaitingReason):
            self._show(uid, record, request)
            return
        self.demand.ask(request)
        found = self.demand.resolve(request, avoided)
        if isinstance(found, WaitingReason):
            self._show(uid, record, found)
        elif avoids_all(avoided, self.demand.largest_of(request).hosts, found):
            self._show(uid, record, WaitingReason(Reason.BACK_OFF, record.says_not_bound(now)))
        else:
            self.demand.waiting[request.partition][uid] = found
            if record.why is None:
                self._show(uid, record, WaitingReason(Reason.SCHEDULING, "it has just been queued"))
                record.expected = self.state.claims[uid].expected  # of an earlier operator
            elif record.written is not None:
                self.state.queues.claim_statuses.add(uid)  # it may have another Pod

    def _request(self, uid: str, refused: int = 0) -> Request | WaitingReason:
        claim, target, pod = self.state.claims[uid], self._target(uid), self.pod_of(uid)
        if pod is None or target is None:
            return WaitingReason(Reason.SCHEDULING, "its Pod is not known yet")
        if pod.attempt:
            self.state.queues.jobs.add(self.state.job_of(pod))
            return WaitingReason(Reason.INVALID_SPEC, second_claim(claim))
        if why := why_not_alone(claim, pod.workload, self.state):
            return why
        known = self.state.profiles.refused(claim.namespace, application_of(pod.workload))
        return request_of_claim(claim, pod.workload, target, refused=refused or known)

    def _grown(self, uid: str, refused: int) -> Job | WaitingReason:
        """Return what a claim asks for after its Pod ran out of some memory."""
        request = self._request(uid, refused)
        return request if isinstance(request, WaitingReason) else self.demand.resolve(request)
