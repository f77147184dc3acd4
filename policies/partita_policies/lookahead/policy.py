"""Beam search for the plan with the least makespan: the heuristic to beat for the learned policy.

The search plays on from the snapshot in the model that the simulator runs by
(`partita_policies.interference`), as far as a policy can know it: from profiles and requests
(`partita_policies.forecast`), never from what the simulator alone knows. A plan starts a
combination of waiting jobs at every moment at which a job ends, until nobody waits; the least
makespan is best, then the least mean completion. Of the best plan, what it starts now is done.

Beam search (the name is R. Reddy's, 1977): of the plans that agree in their first decisions only
the best `beam` are varied at the next one. What a beginning is worth is seen by completing it with
rules, as in the pilot method (C. Duin, S. Voss, "The Pilot Method", Networks 34, 1999): each time
a GPU has room it takes, of the jobs that go well together with those on it,

- `LONGEST`: the one that takes the longest (R. L. Graham, "Bounds on Multiprocessing Timing
  Anomalies", 1969: no job is left to run alone at the end),
- `FULLEST`: the one with which the scarcest resource of each is best used,
- `FASTEST`: the one with which the most work is done in a second,

and `FULLEST` has its way where no plan is clearly better. Jobs go well together
(`partita_policies.lookahead.colocation`) when they finish sooner than by taking turns; what is then
started now is looked at once more, as far as the running jobs have come.

Bounds, for the operator gives a policy 2 s: predictions are counted (`work`), GPUs are planned in
groups of `GROUP`, each with its share of the queue's first jobs, and where the queue is too long
for that, by one rule alone. Priorities come first: jobs of a lower one are planned when those of
a higher one have had their room.
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
"""GPUs that are planned together."""
_WINDOW, _GLANCE = 24, 6
"""Classes of jobs with room that are weighed for a GPU, in a search and without one."""
_MARGIN = 0.003
"""Share of the makespan that a plan must save over the rule `FULLEST`. Less is no knowledge, for
profiles err by more: of many plans the best one is then the one that is most wrong. Chosen among
0, 0.003, 0.01 and 0.02 by what came of four of the study's workloads with profiles that err."""
_PER_JOB = 30
"""Predictions a job below which no search is begun: its first plans would not be completed."""


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
    """One decision: what is placed so far, and what is left to place."""

    def __init__(self, snapshot: Snapshot, parameters: LookaheadParameters) -> None:
        self.placements: list[Placement] = []
        self._snapshot = snapshot
        self._parameters = parameters
        self._work = parameters.work
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        self._typical = typical_duration(snapshot)
        self._since = {b.job: b.elapsed for gpu in snapshot.gpus for b in gpu.running}

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
        for job in waiting.values():  # what no group has had in its share
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
        """Return the jobs to start now in one group, and where."""
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
        """Return what the best plan found starts now; the rule's, where that is as good."""
        by_rule = plans.complete(plans.root, JoinRule.FULLEST)
        best = min(by_rule, *(outcome for outcome, _ in self._beginnings(plans, work)))
        enough = by_rule.makespan <= best.makespan * (1 + _MARGIN)
        return by_rule.now if enough else best.now

    def _beginnings(self, plans: Plans, work: int) -> Iterator[tuple[PlanOutcome, StartPlan]]:
        """Yield beginnings of plans, each completed by every rule, until the work is done."""
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
    """Return the plans of the best outcomes, each once."""
    return list(dict.fromkeys(plan for _, plan in sorted(seen)))[:most]
