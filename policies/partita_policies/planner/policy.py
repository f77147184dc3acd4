"""The policy: it turns a snapshot into arrays, and the native library decides."""

from collections.abc import Callable, Sequence
from ctypes import byref
from itertools import islice
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from partita_policies.capacity import Choice, FreeCapacity
from partita_policies.fgd import FGD, FGDParameters
from partita_policies.forecast import typical_duration
from partita_policies.incremental import CapacityCache
from partita_policies.native import library
from partita_policies.network import Floats, ModelOutputError
from partita_policies.objectives import packs
from partita_policies.planner.cluster import ClusterArrays
from partita_policies.planner.structures import PLACEMENT, NativeSettings, address
from partita_policies.requests import CachedRequest, RequestCache
from partita_policies.types import Job, Objective, Parameters, Placement, Snapshot

__all__ = ["GOALS", "Goal", "Planner", "PlannerParameters", "settings_of"]


_MOST_GPUS = 64
"""Maximum number of GPUs of a snapshot in which it is found for whom room is kept: it takes
decisions of its own, and with more GPUs these are as long as the first. An assumption."""
_EXPLAINED, _SUSPECTED = 2, 3
"""Kinds of jobs for which that is found, and kinds of others that are tried for each."""
_MOST_WORK = 2**63 - 1
"""The largest number of the native library."""


class Goal(NamedTuple):
    """How an objective is served."""

    name: str
    urgency: float
    """Weight of short jobs in the worth of work (`native/choices.h`)."""
    completion: float
    """Weight of the mean completion time in the cost of a plan; the rest is the makespan's."""


GOALS = {
    Objective.MAKESPAN: Goal("makespan", 0.0, 0.0),
    Objective.COMPLETION: Goal("completion", 0.5, 1.0),
}


class PlannerParameters(Parameters):
    """Parameters of `Planner`."""

    slowdown_budget: float | None = Field(
        default=None,
        ge=1,
        description=(
            "The largest predicted slowdown of any job relative to running alone, such as 1.05; "
            "unlimited by default."
        ),
    )
    work: int = Field(
        default=100_000,
        ge=0,
        description=(
            "Bound of the work for plans in a decision, in predictions for a set of jobs; 0: no "
            "plans."
        ),
    )


class Planner:
    """Start the jobs whose work is worth most beside the others, as simulated plans confirm.

    It follows the objective of the partition. Under `Packing`, and under `Balanced` while the
    waiting jobs ask for more memory than is free, it places jobs as `fgd` does. Jobs that need
    several GPUs, and jobs that never end, start on the first GPUs that they fit.
    """

    parameters: ClassVar[type[Parameters]] = PlannerParameters

    def __init__(
        self, parameters: PlannerParameters, weights: dict[str, Floats] | None = None
    ) -> None:
        self._parameters = parameters
        self.weights = weights or {}
        """Weights, by the name of a goal, of networks that correct the gains."""
        self.slowdown_budget = parameters.slowdown_budget
        self._capacity, self._requests = CapacityCache(), RequestCache()
        self._packing = FGD(FGDParameters())
        self.kept_for: dict[str, str] = {}
        """Of jobs that wait although they fit, the id of the job for which the room is kept."""

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place the jobs by descending priority."""
        self.kept_for = {}
        if packs(snapshot):
            return self._packing.decide(snapshot)
        goal = GOALS.get(snapshot.objective, GOALS[Objective.COMPLETION])
        settings = settings_of(goal, self.weights.get(goal.name), self._parameters)
        self._requests.begin()
        typical = typical_duration(snapshot)
        by_priority: dict[int, list[Job]] = {}
        for job in snapshot.jobs:
            by_priority.setdefault(job.priority, []).append(job)
        placements: list[Placement] = []
        with self._capacity.of(snapshot) as capacity:
            for priority in sorted(by_priority, reverse=True):
                waiting = []
                for job in by_priority[priority]:
                    if capacity.holds(job.id):
                        continue
                    if job.gpus == 1 and not job.lasting:
                        waiting.append(job)
                    elif (gpu_ids := capacity.place(job, Choice.FIRST)) is not None:
                        placements.append(Placement(job.id, gpu_ids))
                if not waiting or not snapshot.gpus:
                    continue

                def start(jobs: Sequence[Job]) -> Sequence[tuple[Job, str]]:
                    cluster = ClusterArrays(
                        snapshot.gpus, snapshot.sharing, typical=typical, requests=self._requests
                    )
                    return _decided(cluster, capacity, jobs, snapshot.time, settings)

                for job, gpu_id in start(waiting):
                    capacity.take(job, (gpu_id,))
                    placements.append(Placement(job.id, (gpu_id,)))
                if len(snapshot.gpus) <= _MOST_GPUS:
                    self._find_kept(waiting, capacity, start)
        return placements

    def _find_kept(
        self,
        waiting: Sequence[Job],
        capacity: FreeCapacity,
        start: Callable[[Sequence[Job]], Sequence[tuple[Job, str]]],
    ) -> None:
        """Find for which job the room is kept in which others would fit.

        One is the cause if the other would start as the only waiting job, and with this one as the
        only other job neither starts.
        """
        kinds: dict[CachedRequest, list[Job]] = {}
        for job in waiting:
            if not capacity.holds(job.id):
                kinds.setdefault(self._requests.of(job), []).append(job)
        firsts = [jobs[0] for jobs in kinds.values()]
        fitting = islice(filter(capacity.first_fit, firsts), _EXPLAINED)
        for job in [one for one in fitting if start([one])]:
            for other in islice((one for one in firsts if one is not job), _SUSPECTED):
                if not start([job, other]):
                    alike = kinds[self._requests.of(job)]
                    self.kept_for.update((one.id, other.id) for one in alike)
                    break


def settings_of(
    goal: Goal, weights: Floats | None, parameters: PlannerParameters, *, sharpness: float = 0.0
) -> NativeSettings:
    """Return the settings of the native library."""
    settings = NativeSettings(
        address(weights),
        sharpness,
        goal.urgency,
        goal.completion,
        parameters.slowdown_budget or inf,
        min(parameters.work, _MOST_WORK),
    )
    settings.kept = weights
    return settings


def _decided(
    cluster: ClusterArrays,
    capacity: FreeCapacity,
    jobs: Sequence[Job],
    time: float,
    settings: NativeSettings,
) -> Sequence[tuple[Job, str]]:
    """Return what to start now of jobs with the same priority that need one GPU each."""
    for job in jobs:
        cluster.queues[cluster.kind(job)].append(job)
    cluster.hold(capacity, time)
    problem, state = cluster.problem(), cluster.state(capacity)
    placed = np.zeros(len(jobs), PLACEMENT)
    made = library().decide_once(
        byref(problem), byref(state), byref(settings), cluster.since.ctypes, placed.ctypes
    )
    if made == -1:
        raise ModelOutputError("the network answered with something that is no finite number")
    if made < 0:
        raise MemoryError("no memory for a decision")
    queues = [iter(queue) for queue in cluster.queues]
    return [(next(queues[kind]), cluster.gpus[gpu].id) for kind, gpu in placed[:made].tolist()]
