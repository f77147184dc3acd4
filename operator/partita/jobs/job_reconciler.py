"""Reconciles jobs: plans each job, and records which jobs wait and why.

It only reads `State` and adds to its queues; the loop carries out the plans.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from partita.claims.actions import Actions, PlacementDetails
from partita.claims.claim_lifecycle import ClaimPlan, Eviction, plan_attempt_claim
from partita.claims.pod_claims import second_claim_of_job
from partita.claims.release_deadlines import release_marks
from partita.jobs.attempts import Ending
from partita.jobs.job_allocation import job_allocation, ready_pod
from partita.jobs.job_context import context_of, depends_on_unreadable
from partita.jobs.job_events import events_of, placement_events
from partita.jobs.job_record import JobRecord
from partita.jobs.job_status import job_status, same_status, within
from partita.jobs.lifecycle import Plan, plan_job
from partita.jobs.pod_rejections import PodRejections
from partita.models import (
    Assignment,
    EstimatedStart,
    Outcome,
    Phase,
    SharedGPUJob,
    SharedGPUJobStatus,
    SharingMode,
)
from partita.models.events import UserEvent
from partita.pods.allocation import JobAllocation
from partita.scheduling.avoided_nodes import avoided_nodes, avoided_until
from partita.scheduling.cycle_result import Explained
from partita.scheduling.demand import Demand
from partita.scheduling.gpu_state import drain_deadline, takes_pods
from partita.scheduling.largest_capacity import LargestCapacity
from partita.scheduling.reasons import Reason, WaitingReason, not_admitted
from partita.scheduling.request import request_of_job
from partita.store.comparison import is_wanted
from partita.store.finished_jobs import FinishedJob
from partita.store.state import State
from partita.store.views import PodView
from partita.times import Times
from partita_policies.types import Job

__all__ = ["JobReconciler"]

_DELAYED = (
    "the API server has not answered yet about the Pod of another job of this namespace, perhaps "
    "because an admission webhook is slow"
)


@dataclass
class JobReconciler:
    """Plans every job, and records which jobs wait for GPUs and which release them.

    Parameters
    ----------
    state
        The state that the watches update. `reconcile` reads it again for each job.
    times
        When a job is tried again, and when its status is written.
    """

    state: State
    times: Times = Times()

    def __post_init__(self) -> None:
        self.records: defaultdict[str, JobRecord] = defaultdict(lambda: JobRecord(self.times))
        """What is known of each job besides the state, by UID. Other components add to it."""
        self.rejections = PodRejections(self.times)
        self._delayed: dict[str, tuple[str, str]] = {}
        """Partition and namespace of jobs whose Pods take long to create, by UID."""
        self.demand = Demand(self.state)
        self._capacities: defaultdict[str, LargestCapacity] = defaultdict(LargestCapacity)

    # Reports of other components.

    def end(self, uid: str, eviction: Eviction) -> None:
        """Request the end of a job's attempt, for another job."""
        self.records[uid].ending = Ending(Outcome.PREEMPTED, eviction.message)

    def delayed(self, uid: str, namespace: str) -> None:
        """Record that the API server takes long to create a job's Pod.

        Until it has answered, the other jobs of its partition and namespace wait if they have no
        Pod yet. Otherwise each of them would reserve GPUs in turn, if a webhook is slow.
        """
        if uid not in self.state.queues.jobs.processing:
            return
        waiting, records = self.demand.waiting[self.partition_of(uid)], self.records
        self._delayed[uid] = self.partition_of(uid), namespace
        for other in [other for other, job in waiting.items() if job.namespace == namespace]:
            plan = records[other].plan if other in records else None
            if plan is not None and not plan.has_pod:
                del waiting[other]
                self.state.queues.jobs.add(other)

    def placed(self, uid: str) -> None:
        """Record that GPUs are being allocated for a job."""
        self.demand.waiting[self.records[uid].partition].pop(uid, None)

    def explain(self, uid: str, found: Explained) -> None:
        """Record why a job waits after a cycle, and request a status update if needed."""
        record, job, now = self.records.get(uid), self.state.jobs.get(uid), found.time
        if record is None or record.why is found.why:
            return  # it is deleted, or waits behind those that are considered, as before
        record.why, record.position, record.bypasses = found[:3]
        if record.is_news(found.why.reason, found.generation, now):
            self.state.queues.job_statuses.add(uid)
        elif job is not None and (seconds := record.refresh_in(job.status, now)) is not None:
            self.state.queues.job_statuses.add_after(uid, seconds)

    def expect(self, uid: str, expected: EstimatedStart | None) -> None:
        """Record when a waiting job is expected to start, and request a status update."""
        record = self.records.get(uid)
        if record is not None and record.expected != expected:
            record.expected = expected
            self.state.queues.job_statuses.add(uid)

    def refresh_largest(self, partition: str) -> bool:
        """Recompute the largest capacity of a partition; return whether it has changed."""
        found = self.state.partitions.get(partition)
        largest = self.demand.largest
        old = largest.pop(partition, None)
        if found is None:
            self._capacities.pop(partition, None)
        else:
            largest[partition] = self._capacities[partition].compute(found, self.state)
        return largest.get(partition) != old

    # Queries of other components.

    def expected(self, uid: str) -> EstimatedStart | None:
        """Return when a waiting job is expected to start, if that is known."""
        record = self.records.get(uid)
        return record.expected if record is not None else None

    def partition_of(self, uid: str) -> str:
        """Return the name of the job's partition; empty if it is unknown."""
        record = self.records.get(uid)
        return record.partition if record is not None else ""

    def allocation_for(
        self, asks: Job, gpus: Sequence[str]
    ) -> tuple[SharedGPUJob, JobAllocation] | None:
        """Return a job, and the allocation for which the Pod of its next attempt is created.

        Parameters
        ----------
        asks, gpus
            What a cycle has placed, and the names of the GPUServers.
        """
        state, record = self.state, self.records.get(asks.id)
        if (job := state.jobs.get(asks.id)) is None or record is None or record.plan is None:
            return None
        servers = [state.servers[name] for name in gpus if name in state.servers]
        partition = state.partitions.get(job.spec.partition)
        if partition is None or len(servers) < len(gpus):
            return None
        return job, job_allocation(job, record.plan.next_attempt, asks, servers, partition)

    def pod_for(self, asks: Job, gpus: Sequence[str]) -> PodView | None:
        """Return the Pod that gets the GPUs of a placed job if nothing is left to be created."""
        found = self.allocation_for(asks, gpus)
        return ready_pod(*found, self.state) if found is not None else None

    def placement_events(self, uid: str, placed: PlacementDetails) -> Iterable[UserEvent]:
        """Return the Events about the GPUs that a job has got."""
        if (job := self.state.jobs.get(uid)) is None:
            return ()
        partition = self.state.partitions.get(job.spec.partition)
        return placement_events(job, placed, self.state.allocated(uid), partition)

    # Reconciliation.

    def actions(self, uid: str, now: datetime) -> Actions:
        """Plan one job again, and return what to do."""
        if (finished := self.state.finished.get(uid)) is not None:
            return self._revisit(finished, now)
        plan, claim = self.reconcile(uid, now), self.plan_claim(uid, now)
        if plan is None:
            return Actions(writes=claim.writes)
        job = self.state.jobs[uid]
        return Actions(
            writes=claim.writes,
            events=tuple(events_of(job, plan)),
            delete=(*plan.delete_pods, *plan.delete_claims),
            grace=plan.grace,
            read_missing=plan.read_missing,
            expired=FinishedJob.of(job) if plan.expire else None,
            wake=self.requeue_at(uid, now),
        )

    def _revisit(self, job: FinishedJob, now: datetime) -> Actions:
        """Delete a finished job after its time to live; read it if anything of it turned up."""
        if self.state.has_leftovers(job.uid):
            return Actions(read=job)
        over = job.expires is not None and job.expires <= now
        return Actions(expired=job) if over else Actions(wake=job.expires)

    def reconcile(self, uid: str, now: datetime) -> Plan | None:
        """Plan one job again, and add it to the waiting jobs or remove it.

        Returns
        -------
        Plan or None
            The plan; None if the job is deleted or depends on an unreadable object.
        """
        delayed = self._delayed.pop(uid, None)
        if delayed is not None and delayed not in self._delayed.values():
            partition, namespace = delayed
            jobs = (j.metadata for j in self.state.jobs_of(partition))
            self.state.queues.jobs.add(*(meta.uid for meta in jobs if meta.namespace == namespace))
        with self.demand.changing(uid, lambda: self.partition_of(uid)):
            return self._plan(uid, now)

    def _plan(self, uid: str, now: datetime) -> Plan | None:
        job = self.state.jobs.get(uid)
        if job is None and not self.state.unknown(uid):
            self._forget(uid, now)
        if job is None or depends_on_unreadable(job, self.state):
            return None
        record = self.records[uid]
        record.partition = job.spec.partition
        if said := second_claim_of_job(uid, self.state):
            self.rejections.note(job, WaitingReason(Reason.INVALID_SPEC, said), now)
            record.ending = Ending(Outcome.NOT_STARTED, said)
        context = context_of(job, record, self.state, now)
        plan = plan_job(job, context, now)
        if plan.phase is Phase.QUEUED and (why := self._nothing_larger(job, plan)):
            plan = plan_job(job, replace(context, nothing_larger=why), now)
        record.plan = plan
        if plan.release:
            self.demand.release(uid)
        self.demand.mark(uid, plan.marks)
        if plan.wants_gpu:
            self._enqueue(job, record, plan, now)
        else:
            record.why = record.position = record.explained = record.expected = None
            record.bypasses = 0
        over = all(a.outcome is not None for a in job.status.attempts)
        if over and not self.state.is_allocated(uid):
            record.ending = None
        return plan

    def plan_claim(self, uid: str, _now: datetime) -> ClaimPlan:
        """Plan the claim of a job's attempt, which never waits: what waits is the job."""
        state, job = self.state, self.state.jobs.get(uid)
        claim = state.claims.get(state.holder(uid))
        if job is None or claim is None or not is_wanted(job, claim.attempt):
            return ClaimPlan()
        allocated = state.allocated(claim.uid)
        if not takes_pods(allocated, state):
            return ClaimPlan()
        return plan_attempt_claim(claim, state.pods_of(uid), allocated)

    def _forget(self, uid: str, now: datetime) -> None:
        allocated = self.state.allocated(uid)
        alive = [p for p in self.state.pods_of(uid) if p.alive]
        if not alive:
            self.demand.release(uid)
        elif all(self.state.servers[name].spec.mode is SharingMode.MPS for name in allocated):
            self.demand.mark(uid, release_marks(alive, allocated, now))
        self._drop(uid)

    def _drop(self, uid: str) -> None:
        self.records.pop(uid, None)
        self.rejections.forget(uid)

    def _why_not_tried(self, job: SharedGPUJob, plan: Plan, now: datetime) -> WaitingReason | None:
        """Return why no Pod of a job is to be created now; None if one may be."""
        if (refused := self.rejections.of(job, now)) is not None:
            return refused.why
        pods = (pod for pod in self.state.pods_of(job.metadata.uid) if pod.alive)
        waiting = next((pod for pod in pods if pod.attempt == plan.next_attempt), None)
        if waiting is not None and waiting.other_gates:
            return not_admitted(waiting.other_gates[0])
        where = job.spec.partition, job.metadata.namespace
        delayed = where in self._delayed.values() and not plan.has_pod
        return WaitingReason(Reason.SCHEDULING, _DELAYED) if delayed else None

    def _enqueue(self, job: SharedGPUJob, record: JobRecord, plan: Plan, now: datetime) -> None:
        request, why = request_of_job(job, plan.attempts), self._why_not_tried(job, plan, now)
        self.demand.ask(request)
        found = why or self.demand.resolve(request, avoided_nodes(plan.attempts, now))
        if isinstance(found, WaitingReason):
            record.why = found
            record.position = record.explained = record.expected = None
            return
        self.demand.waiting[request.partition][request.uid] = found
        if record.why is None:
            partition = self.state.partitions[job.spec.partition]
            record.restore(job.status, partition.metadata.generation, now)

    def _nothing_larger(self, job: SharedGPUJob, plan: Plan) -> str:
        """Return why a job that ran out of memory cannot get more; empty if it can."""
        if all(a.outcome is not Outcome.OUT_OF_MEMORY for a in plan.attempts):
            return ""
        match self.demand.resolve(request_of_job(job, plan.attempts)):
            case WaitingReason(Reason.OUT_OF_MEMORY, message):
                return message
            case _:
                return ""

    def requeue_at(self, uid: str, now: datetime) -> datetime | None:
        """Return when the job must be reconciled again even if nothing changes."""
        record = self.records[uid]
        times = [drain_deadline(server, self.state) for server in self.state.allocated(uid)]
        if record.plan:
            times += record.plan.wake, avoided_until(record.plan.attempts, now)
        job = self.state.jobs.get(uid)
        refused = self.rejections.of(job, now) if job else None
        times.append(refused.pause.until if refused and refused.pause else None)
        return min((t for t in times if t is not None and t > now), default=None)

    def status(self, uid: str, now: datetime) -> tuple[SharedGPUJobStatus, float] | None:
        """Return the status to write for a job, and within how many seconds; None for no write.

        Numbers in a message and positions in the queue change often. If only they have changed, the
        status is written only every `Times.refresh`.
        """
        job, record = self.state.jobs.get(uid), self.records.get(uid)
        if job is None or record is None or record.plan is None:
            return None
        plan = record.plan
        partition = self.state.partitions.get(job.spec.partition)
        cap = partition.spec.priority_cap(job.metadata.namespace) if partition else None
        status = job_status(
            job,
            plan,
            now,
            place=self._place(uid, plan),
            why=record.why if plan.phase is Phase.QUEUED and plan.wants_gpu else None,
            position=record.position,
            expected=record.expected,
            bypasses=record.bypasses,
            priority_cap=cap,
            readable=not self.state.unreadable.problem(uid),
        )
        if plan.phase.finished and same_status(status, job.status) and not plan.expire:
            self.state.archive(uid)
            if uid in self.state.finished:
                self._drop(uid)
                return None
        if seconds := record.show(status, job.status, now):
            self.state.queues.job_statuses.add_after(uid, seconds)
        return (status, within(job.status, status, self.times)) if seconds == 0 else None

    def _place(self, uid: str, plan: Plan) -> Assignment | None:
        if not (allocated := self.state.allocated(uid)):
            return None
        servers = [self.state.servers[name] for name in allocated]
        first = next(iter(allocated.values()))
        return Assignment(
            servers=tuple(allocated),
            gpus=tuple(server.status.uuid for server in servers),
            node=servers[0].status.node,
            memory=first.memory,
            memory_limit=first.memory_limit,
            thread_percent=first.thread_percent,
            pod=first.pod,
            attempt=first.attempt,
            beside=next((a.beside for a in plan.attempts if a.number == first.attempt), ()),
        )
