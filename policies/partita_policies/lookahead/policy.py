"""Beam search for the plan with the least makespan: the heuristic baseline for the learned policy.

The search simulates plans from the snapshot on with the interference model of the simulator
(`partita_policies.interference`). It uses only information that a policy has: profiles and
requests (`partita_policies.forecast`). A plan starts a combination of waiting jobs whenever a job
ends, until no job waits. The plan with the least makespan is best, then the one with the least
mean completion time. The policy starts the jobs that the best plan starts now.

Beam search (named by R. Reddy, 1977) keeps only the best `beam` partial plans at each step. A
partial plan is rated by completing it with rules, as in the pilot method (C. Duin, S. Voss, "The
Pilot Method", Networks 34, 1999). Each time a GPU has free capacity, a rule adds one of the jobs
whose co-location is beneficial:

- `LONGEST`: the job with the longest duration (R. L. Graham, "Bounds on Multiprocessing Timing
  Anomalies", 1969: no job is left to run alone at the end),
- `FULLEST`: the job that makes the best use of the scarcest resource of each job,
- `FASTEST`: the job with which the most work is done per second.

The plan of `FULLEST` is used unless another plan is clearly better. Co-location is beneficial
(`partita_policies.lookahead.colocation`) if the jobs finish sooner than one after the other. The
jobs to start now are checked again with the progress of the running jobs.

The work is bounded, because the operator gives a policy 2 s. Predictions are counted (`work`).
GPUs are planned in groups of `GROUP`, each with its share of the first jobs of the queue. If the
queue is too long for a search, one rule decides alone. Jobs of lower priority are planned after
all jobs of higher priority.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from partita_policies.capacity import FreeCapacity
from partita_policies.forecast import typical_duration
from partita_policies.lookahead.colocation import JoinRule
from partita_policies.lookahead.plans import PlanOutcome, Plans, Start, StartPlan
from partita_policies.types import GPU, Job, Parameters, Placement, Snapshot

__all__ = ["Lookahead", "LookaheadParameters"]

GROUP = 8
"""Number of GPUs that are planned together."""
_WINDOW, _GLANCE = 24, 6
"""Maximum number of fitting job classes compared for a GPU, with and without a search."""
_MARGIN = 0.003
"""Share of the makespan that a plan must save over the rule `FULLEST`. Smaller savings are not
significant, because the errors of profiles are larger: the best of many plans is then the one with
the largest error. Chosen among 0, 0.003, 0.01 and 0.02 by the results of four of the study's
workloads with inaccurate profiles."""
_PER_JOB = 30
"""Minimum predictions per job for a search. With fewer, the first plans would be incomplete."""


class LookaheadParameters(Parameters):
    """Parameters of `Lookahead`."""

    beam: int = Field(
        default=4,
        ge=1,
        description="How many partial plans are kept at each step (beam width).",
    )
    branching: int = Field(
        default=6, ge=1, description="How many combinations of jobs are tried at each step."
    )
    depth: int = Field(
        default=12, ge=0, description="How many steps of a plan are searched; a rule completes it."
    )
    view: int = Field(
        default=128, ge=1, description="How many waiting jobs are planned for each group of GPUs."
    )
    work: int = Field(
        default=30_000,
        ge=0,
        description="Predictions per decision; 0 turns the search off and leaves only a rule.",
    )


class Lookahead:
    """Search for the plan with the shortest makespan, and start what it starts first."""

    parameters: ClassVar[type[Parameters]] = LookaheadParameters

    def __init__(self, parameters: LookaheadParameters) -> None:
        self._parameters = parameters

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Search for each group of GPUs in turn."""
        decision = _Decision(snapshot, self._parameters)
        for priority in sorted({job.priority for job in snapshot.jobs}, reverse=True):
            decision.place([job for job in snapshot.jobs if job.priority == priority])
        return decision.placements


class _Decision:
    """The state of one decision: placements so far and free capacity."""

    def __init__(self, snapshot: Snapshot, parameters: LookaheadParameters) -> None:
        self.placements: list[Placement] = []
        self._snapshot = snapshot
        self._parameters = parameters
        self._work = parameters.work
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._typical = typical_duration(snapshot)
        self._since = {
            b.job: b.elapsed(snapshot.time) for gpu in snapshot.gpus for b in gpu.running
        }

    def place(self, jobs: Sequence[Job]) -> None:
        """Place jobs of one priority."""
        capacity = self._capacity
        for job in jobs:
            if job.gpus > 1:
                self._take(job, capacity.first_fit(job))
        waiting = {job.id: job for job in jobs if job.gpus == 1 and not capacity.holds(job.id)}
        gpus = self._snapshot.gpus
        groups = [gpus[start : start + GROUP] for start in range(0, len(gpus), GROUP)]
        for index, group in enumerate(groups):
            if not waiting or capacity.full:
                break
            share = list(waiting.values())[:: len(groups) - index][: self._parameters.view]
            for job, gpu_id in self._planned(group, share, self._work // (len(groups) - index)):
                if capacity.why_not(job, gpu_id) is None:
                    self._take(job, (gpu_id,))
                    del waiting[job.id]
        for job in waiting.values():  # jobs in the share of no group
            if not capacity.has_idle:
                break
            self._take(job, capacity.first_fit(replace(job, alone=True)))

    def _take(self, job: Job, gpu_ids: tuple[str, ...] | None) -> None:
        if gpu_ids is not None:
            self._capacity.take(job, gpu_ids)
            self.placements.append(Placement(job.id, gpu_ids))

    def _planned(
        self, gpus: Sequence[GPU], jobs: Sequence[Job], work: int
    ) -> Iterable[tuple[Job, str]]:
        """Return the jobs to start now on the GPUs of one group."""
        enough = work >= _PER_JOB * len(jobs) and work > 0
        plans = Plans(
            [self._capacity[gpu.id] for gpu in gpus],
            jobs,
            self._snapshot.sharing,
            capacity=self._capacity,
            since=self._since,
            typical=self._typical,
            window=_WINDOW if enough else _GLANCE,
        )
        if plans.empty:
            return []
        now = self._search(plans, work) if enough else plans.fill(JoinRule.FULLEST)
        chosen = list(plans.no_slower(now))
        self._work -= plans.work
        queues = [iter(queue) for queue in plans.queues]
        return [(next(queues[job_class]), gpus[place].id) for place, job_class in chosen]

    def _search(self, plans: Plans, work: int) -> Iterable[Start]:
        """Return what the best plan starts now; that of `FULLEST` if it is about as good."""
        by_rule = plans.complete(plans.root, JoinRule.FULLEST)
        best = min(by_rule, *(outcome for outcome, _ in self._beginnings(plans, work)))
        enough = by_rule.makespan <= best.makespan * (1 + _MARGIN)
        return by_rule.now if enough else best.now

    def _beginnings(self, plans: Plans, work: int) -> Iterator[tuple[PlanOutcome, StartPlan]]:
        """Yield partial plans, each completed by every rule, until `work` is used up."""
        for rule in JoinRule:
            yield plans.complete(plans.root, rule), plans.root
        beam = [plans.root]
        for _ in range(self._parameters.depth):
            seen: list[tuple[PlanOutcome, StartPlan]] = []
            for plan in beam:
                for child in plans.options(plan, self._parameters.branching):
                    completed = [(plans.complete(child, rule), child) for rule in JoinRule]
                    seen += completed
                    yield from completed
                    if plans.work > work:
                        return
            beam = _best(seen, self._parameters.beam)
            if not beam:
                return


def _best(seen: Iterable[tuple[PlanOutcome, StartPlan]], most: int) -> list[StartPlan]:
    """Return the plans with the best outcomes, without duplicates."""
    return list(dict.fromkeys(plan for _, plan in sorted(seen)))[:most]
