"""The steps of a scheduling cycle. `cycle` says in which order they are taken."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from partita.models import GPUPartition, GPUServer
from partita.pods.termination import preemption_grace
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.current_guard import guard_of, still_waits
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.eligibility import Eligibility
from partita.scheduling.endable import Endable
from partita.scheduling.growths import due_growths, serve_growths
from partita.scheduling.guard import Guard
from partita.scheduling.lasting_jobs import fit_now, turns_of
from partita.scheduling.node_resources import allocatable_of
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import Answer
from partita.scheduling.preemption import (
    EarlierHolds,
    Preemption,
    PreemptionOutlook,
    victims_for,
)
from partita.scheduling.queue_order import fair_order
from partita.scheduling.reservations import fit_among, gpus_to_hold
from partita.scheduling.snapshot import snapshot_of
from partita.scheduling.waiting_jobs import WaitingJobs
from partita.scheduling.waiting_reasons import WaitingReasons, shape_of
from partita.store.state import State
from partita_policies.amounts import GPUAmounts
from partita_policies.types import GPU, Job, Sharing

__all__ = ["CycleSteps"]

_SEARCHES = 8
"""Jobs for which one cycle searches victims; the next cycle continues the search. On 1,000 GPUs
with 8 jobs each, 8 searches took 0.1 to 0.3 s of CPU time."""
SEARCH_AGAIN = 0.1
"""Seconds until the next cycle if the search for victims is not complete."""


@dataclass
class CycleSteps:
    """The steps of one cycle, and what they share: placements, held GPUs, and the result.

    Parameters
    ----------
    waiting
        The jobs that wait for GPUs. They may change while the policy runs.
    released
        UIDs of claims whose allocations this cycle releases, by GPUServer. They count as free.
    memory
        State from earlier cycles. It is updated.
    growths
        The allocated claims that need more memory, by UID.
    protected
        UIDs of claims whose Pods cannot be evicted now.
    """

    partition: GPUPartition
    state: State
    waiting: WaitingJobs
    released: Mapping[str, set[str]]
    memory: PartitionState
    now: datetime
    growths: Mapping[str, Growth] = field(default_factory=dict)
    protected: Collection[str] = ()

    def __post_init__(self) -> None:
        servers = self.state.servers_of(self.partition.metadata.name)
        self._endable = Endable.of(self.partition, servers, self.protected, self.now)
        self._sharing = Sharing(self.partition.spec.sharing.mode)
        self._grace = preemption_grace(self.partition.spec)
        self._known: dict[str, tuple[GPUServer, GPU]] = {}
        self._holds: dict[str, tuple[str, ...]] = {}
        """GPUs held for each job, by UID."""
        self._deferred: list[Job] = []
        """Lasting jobs behind a job of a higher priority that fits now."""
        self.result = CycleResult()

    def guard(self) -> Guard:
        """Return a guard for the partition's current state, with this cycle's placements made."""
        guard = guard_of(
            self.partition,
            self.state,
            waiting=self.waiting,
            released=self.released,
            known=self._known,
            reserved=self.memory.reserved,
        )
        for growth in self.result.grown:
            guard.grow(growth.job, growth.gpu_server)
        placed, self.result.placed = self.result.placed, []
        for job, where in placed:
            if not guard.refusal(job.id, where):
                guard.accept(job, where)
                self.result.placed.append((job, where))
        return guard

    def queue(self, guard: Guard) -> list[Job]:
        """Return the jobs that namespace and quota allow to start, in queue order."""
        aging = self.memory.aging
        aging.keep_only(self.waiting.keys())
        eligibility = Eligibility(self.partition, self.state, guard, self._endable)
        waits = partial(still_waits, state=self.state, released=self.released)
        kept = [*self.memory.reserved, *self.memory.nominated]
        waiting = [self.waiting[uid] for uid in self.waiting.considered(kept) if waits(uid)]
        refused = {job.id: why for job in waiting if (why := eligibility.why_not(job))}
        self.result.why |= refused
        order = fair_order(
            [job for job in waiting if job.id not in refused],
            held={name: held.amounts for name, held in guard.held.items()},
            gpus=guard.gpus,
            weights={q.namespace: q.weight for q in self.partition.spec.quotas},
            past=self.memory.past_shares,
        )
        return [replace(j, bypasses=n) if (n := aging.bypasses.get(j.id)) else j for j in order]

    def _start(self, job: Job, guard: Guard) -> bool:
        """Place a job on GPUs that are not held for other jobs, if it fits there now."""
        fitting = fit_now(job, guard.capacity, self._unheld(guard.gpus), self._sharing)
        return fitting is not None and self._place(job, fitting, guard)

    def _place(self, job: Job, gpus: tuple[str, ...], guard: Guard) -> bool:
        if guard.refusal(job.id, gpus):
            return False
        guard.accept(job, gpus)
        self.result.placed.append((job, gpus))
        return True

    def _unheld(self, gpus: Sequence[GPU]) -> list[GPU]:
        held = {gpu for theirs in self._holds.values() for gpu in theirs}
        return [gpu for gpu in gpus if gpu.id not in held]

    def serve_reserved(self, guard: Guard) -> None:
        """Place the jobs whose Pods exist now on the GPUs that were chosen for them."""
        for job in self.result.order:
            if (reserved := self.memory.reserved.pop(job.id, None)) is not None:
                self._place(job, reserved.gpus, guard)
                self.result.chosen_before[job.id] = reserved.policy

    def serve_growths(self, guard: Guard) -> None:
        """Raise the memory of the claims that need more, as far as there is room."""
        held = {gpu for names in self.memory.nominated.values() for gpu in names}
        free = [gpu for gpu in guard.gpus if gpu.id not in held]
        due = due_growths(self.growths, self.state)
        serve_growths(due, guard, free, self.result, kept=self.protected)

    def serve_preemptors(self, guard: Guard) -> PreemptionOutlook:
        """Place the jobs for which others were preempted, or keep holding GPUs for them.

        Return the GPUs after the preempted jobs have ended and these jobs have started.
        """
        nominated, leaving = self.memory.nominated, self._leaving(guard.gpus)
        outlook = PreemptionOutlook(guard.gpus, leaving, guard.nodes.values())
        restores, self.memory.holds_restored = not self.memory.holds_restored, True
        earlier = EarlierHolds(guard.gpus, leaving if restores else (), self._endable)
        for job_id in nominated.keys() - {job.id for job in self.result.order}:
            del nominated[job_id]
        for job in self.memory.preemptors_first(self.result.order):
            names = nominated.pop(job.id, ()) or earlier.of(job, outlook)
            if not names:
                continue
            fitting = self._fitting(job, guard, outlook)
            now = fit_now(job, guard.capacity, fitting, self._sharing)
            if now is not None and self._place(job, now, guard):
                outlook.take(job, now, guard)
            elif outlook.fits(job, *names) and not guard.limit_on(
                job, names, lasting=outlook.lasting
            ):
                nominated[job.id] = self._holds[job.id] = names
                outlook.take(job, names, guard)
        return outlook

    def _fitting(self, job: Job, guard: Guard, outlook: PreemptionOutlook) -> list[GPU]:
        """Return the GPUs on which a job fits now, without those promised to other jobs."""
        now = (gpu for gpu in guard.gpus if guard.capacity.why_not(job, gpu.id) is None)
        return [gpu for gpu in now if outlook.fits(job, gpu.id)]

    def _leaving(self, gpus: Sequence[GPU]) -> set[str]:
        """Return the UIDs of preempted jobs that still hold GPUs and are in their grace period."""
        victims = self.memory.victims
        allocated = {running_job.job for gpu in gpus for running_job in gpu.running}
        victims.update(allocated, self.state, self._grace)
        for uid in self.protected:
            victims.discard(uid)
        leaving = victims.leaving(self.now)
        if leaving:
            self._again((min(leaving.values()) - self.now).total_seconds())
        return set(leaving)

    def _again(self, seconds: float) -> None:
        before = self.result.again
        self.result.again = seconds if before is None else min(before, seconds)

    def serve_aged(self, guard: Guard) -> None:
        """Place jobs that must not be bypassed again; hold GPUs for the first that does not fit."""
        memory, limit = self.memory, self.partition.spec.policy.max_bypasses
        served = {job.id for job, _ in self.result.placed} | self._holds.keys()
        aged = [job for job in memory.aging.aged(self.result.order, limit) if job.id not in served]
        first = next((job for job in memory.aging.in_turn(aged) if self._claim(job, guard)), None)
        if first is None:
            return
        memory.aging.reserve(first)
        higher = [job for job in self.result.order if job.priority > first.priority]
        if not self._let_in(higher, guard):
            for job in aged:
                if job is not first and job.priority >= first.priority:
                    self._start(job, guard)
        wanted = self._holds.pop(first.id)
        if not self._place(first, wanted, guard):
            self._holds[first.id] = wanted

    def _claim(self, job: Job, guard: Guard) -> bool:
        """Hold the GPUs on which a job fits now, or otherwise will fit soonest."""
        free = self._unheld(guard.gpus)
        wanted = fit_now(job, guard.capacity, free, self._sharing) or gpus_to_hold(
            job, guard.capacity, free, guard.at_end()
        )
        # No GPUs are held for a job that exceeds a limit.
        if not wanted or guard.limit_on(job, wanted):
            return False
        self._holds[job.id] = wanted
        return True

    def _let_in(self, higher: Sequence[Job], guard: Guard) -> bool:
        """Place jobs of a higher priority on GPUs that are held for an aged job.

        Only jobs that fit nowhere else are placed. The policy decides about the others.

        Returns
        -------
        bool
            Whether any of them could start now, on these or on other GPUs.
        """
        preemptors = {gpu for names in self.memory.nominated.values() for gpu in names}
        open_to_them = [gpu for gpu in guard.gpus if gpu.id not in preemptors]
        served = {job.id for job, _ in self.result.placed} | self._holds.keys()
        hopeless, any_fits = set[tuple[object, ...]](), False
        for job in higher:
            if job.id in served or shape_of(job) in hopeless:
                continue
            there = fit_now(job, guard.capacity, open_to_them, self._sharing)
            if there is None:
                hopeless.add(shape_of(job))
                continue
            any_fits = True
            if fit_among(job, guard.capacity, self._unheld(guard.gpus)) is None:
                self._place(job, there, guard)
        return any_fits

    def serve_lasting(self, guard: Guard) -> None:
        """Place the lasting jobs that come before every other job that fits now."""
        served = {job.id for job, _ in self.result.placed} | self._holds.keys()
        gpus = self._unheld(guard.gpus)
        turns = turns_of(self.result.order, guard, gpus, self._sharing, served=served)
        for job in turns.before:
            self._start(job, guard)
        self._deferred = turns.after

    def serve_deferred(self, guard: Guard) -> None:
        """Place the deferred lasting jobs; the next cycle decides on the jobs behind them."""
        for job in self._deferred:
            self._start(job, guard)
        if self._deferred:
            self._again(0.0)

    def preempt(self, guard: Guard, outlook: PreemptionOutlook) -> None:
        """End jobs that may be ended for waiting jobs that then fit."""
        placed = {job.id: gpus for job, gpus in self.result.placed}
        for job in self.result.order:
            if job.id in placed and job.id not in outlook:
                outlook.take(job, placed[job.id], guard)
        running = [b for g in guard.gpus for b in g.running]
        least, searched, searches = self._endable.least_priority(running), self.memory.searched, 0
        for job in self.result.order:
            if least is None or job.priority < least:
                break
            shape = (job.namespace, job.priority, *shape_of(job))
            if job.id in placed or job.id in self.memory.nominated or shape in searched:
                continue
            if searches == _SEARCHES:
                self._again(SEARCH_AGAIN)
                return
            searches += 1
            if not self._nominate(job, guard, outlook, kept=placed.keys()):
                searched.add(shape)
        searched.clear()

    def _nominate(
        self, job: Job, guard: Guard, outlook: PreemptionOutlook, *, kept: Collection[str]
    ) -> bool:
        """Choose GPUs and victims for a job; return whether preemption lets the job start."""
        memory = self.memory
        higher = {j.id for j in self.result.order if j.priority >= job.priority}
        spared = {
            gpu
            for owner, theirs in self._holds.items()
            if owner in higher and owner not in memory.nominated
            for gpu in theirs
        }
        kept = {*kept, *memory.victims.overdue(self.now), *self.protected}
        found = victims_for(
            job,
            outlook.gpus,
            endable=self._endable.when_held(outlook.held, guard.total, kept),
            hosts=outlook.hosts,
            spared=spared,
            services_room=guard.services_limit.minus(outlook.lasting),
        )
        if found is None:
            return False
        names, victims = found
        # What services have on GPUs of victims was compared above.
        if guard.limit_on(job, names, lasting=GPUAmounts()):
            return False
        if not victims and guard.capacity.why_not_together(job, names) is None:
            return False  # it fits without preemption
        running = tuple(v for v in victims if v.job not in memory.nominated)
        for victim in victims:
            memory.nominated.pop(victim.job, None)
            self._holds.pop(victim.job, None)
            outlook.drop(victim.job)
        overridden = [o for o, g in self._holds.items() if o not in memory.nominated]
        for owner in overridden:
            if set(self._holds[owner]) & set(names):
                del self._holds[owner]
        outlook.take(job, names, guard)
        memory.nominated[job.id] = self._holds[job.id] = names
        for victim in running:
            until = memory.victims.add(victim.job, self.now, self._grace)
            self._again((until - self.now).total_seconds())
        if running:
            idle = frozenset(v.job for v in running if v.job in self._endable.idle)
            self.result.preemptions.append(Preemption(job, names, running, idle))
        return True

    async def ask_policy(self, guard: Guard) -> Guard:
        """Call the policy with the GPUs that are not held for a job, and check its answer.

        If lasting jobs are deferred, the policy gets only the jobs of a higher priority.

        Returns
        -------
        Guard
            A guard for the partition's state after the policy has run.
        """
        result, runner = self.result, self.memory.runner
        taken = {job.id for job, _ in result.placed} | self._holds.keys()
        jobs = [job for job in result.order if job.id not in taken and not job.lasting]
        if self._deferred:
            jobs = [job for job in jobs if job.priority > self._deferred[0].priority]
        gpus = tuple(self._unheld(guard.remaining()))
        if not jobs or not gpus:
            return guard
        snapshot = result.snapshot = snapshot_of(
            self.partition, jobs, gpus, guard.remaining_nodes(gpus, self._holds), self.now
        )
        answer = await runner.decide(snapshot)
        guard = self.guard()
        verdict = guard.check(answer.placements, snapshot)
        if verdict.broken and not answer.failure:
            runner.rejected += len(verdict.broken)
            failure = f"policy {answer.policy} broke a rule: {verdict.broken[0]}"
            answer = await runner.fall_back(snapshot, failure)
            guard = self.guard()
            verdict = guard.check(answer.placements, snapshot)
        result.answer = answer
        result.placed += verdict.accepted
        return guard

    def explain(self, guard: Guard, placed: set[str]) -> None:
        """Record why the jobs that were not placed wait."""
        result, partition = self.result, self.partition
        reasons = WaitingReasons(
            guard.capacity,
            guard.remaining(),
            nodes=tuple(guard.nodes.values()),
            holds=self._holds,
            answer=result.answer or Answer((), partition.spec.policy.name),
            partition=partition.metadata.name,
            wanted=partition.spec.gpus,
            totals=allocatable_of(guard.nodes, self.state),
            order=[job for job in result.order if job.id not in placed],
            sharing=self._sharing,
        )
        for job in result.order:
            if job.id not in placed:
                limit = guard.limit_anywhere(job)
                nominated = job.id in self.memory.nominated
                result.why[job.id] = reasons.why(job) if nominated or not limit else limit
        result.short = frozenset(reasons.short)
