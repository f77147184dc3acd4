"""The policy: it turns a snapshot into arrays, and the native library decides."""

from collections.abc import Iterable, Sequence
from ctypes import byref, c_float
from math import inf
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from partita_policies.capacity import FreeCapacity
from partita_policies.dqn.cluster import ClusterArrays
from partita_policies.dqn.network import Floats, ModelOutputError, Network
from partita_policies.dqn.structures import (
    FEATURES,
    HIDDEN,
    PLACEMENT,
    NativeSettings,
    pointer,
)
from partita_policies.fgd import FGD, FGDParameters
from partita_policies.forecast import typical_duration
from partita_policies.native import library
from partita_policies.objectives import packs
from partita_policies.types import Job, Objective, Parameters, Placement, Snapshot

__all__ = ["DQN", "GOALS", "KIND", "VERSION", "WEIGHTS", "DQNParameters", "Goal", "settings_of"]

KIND, VERSION = "dqn", 3
"""Of the model file."""
WEIGHTS = FEATURES * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN + 1
SPREAD, ACTIONS, PLANS = 0.3, 12, 32
"""Spread of the logarithms of the prices in plans, choices compared, and plans for each."""


class Goal(NamedTuple):
    """How an objective is served."""

    network: str
    """Name of the weights in the model file."""
    urgency: float
    """Weight of short jobs in the worth of work (`native/choices.h`)."""
    completion: float
    """Weight of the mean completion time in the cost of a plan; the rest is the makespan's."""


GOALS = {
    Objective.MAKESPAN: Goal("makespan", 0.0, 0.0),
    Objective.COMPLETION: Goal("completion", 0.5, 1.0),
}


class DQNParameters(Parameters):
    """Parameters of `DQN`."""

    model: Path | None = Field(
        default=None,
        description="File that `partita train` wrote; by default the one of this package.",
    )
    slowdown_budget: float | None = Field(
        default=None,
        ge=1,
        description=(
            "The largest predicted slowdown of any job relative to running alone, such as 1.05; "
            "unlimited by default."
        ),
    )
    work: int = Field(
        default=10_000,
        ge=0,
        description=(
            "Bound of the work for plans in a decision, in predictions for a set of jobs; 0: the "
            "network decides alone."
        ),
    )


class DQN:
    """Start the jobs that a trained network rates best and simulated plans confirm.

    It follows the objective of the partition. Under `Packing`, and under `Balanced` while the
    waiting jobs ask for more memory than is free, it places jobs as `fgd` does. Jobs that need
    several GPUs, and jobs that never end, start on the first GPUs that they fit.
    """

    parameters: ClassVar[type[Parameters]] = DQNParameters

    def __init__(self, parameters: DQNParameters) -> None:
        self._parameters = parameters
        shapes = {goal.network: (WEIGHTS,) for goal in GOALS.values()}
        self._model = Network.load(parameters.model, KIND, VERSION, shapes)

    @classmethod
    def prior(cls, parameters: DQNParameters) -> "DQN":
        """Return the policy with networks that answer 0, as before a training."""
        policy = cls(parameters)
        policy._model.arrays = {
            name: np.zeros_like(weights) for name, weights in policy._model.arrays.items()
        }
        return policy

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place the jobs by descending priority."""
        if packs(snapshot):
            return FGD(FGDParameters()).decide(snapshot)
        goal = GOALS.get(snapshot.objective, GOALS[Objective.COMPLETION])
        settings = settings_of(goal, self._model.arrays[goal.network], self._parameters)
        capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        placements: list[Placement] = []
        for priority in sorted({job.priority for job in snapshot.jobs}, reverse=True):
            waiting = []
            for job in snapshot.jobs:
                if job.priority != priority or capacity.holds(job.id):
                    continue
                if job.gpus == 1 and not job.lasting:
                    waiting.append(job)
                elif (gpu_ids := capacity.first_fit(job)) is not None:
                    capacity.take(job, gpu_ids)
                    placements.append(Placement(job.id, gpu_ids))
            for job, gpu_id in _decided(snapshot, capacity, waiting, settings):
                capacity.take(job, (gpu_id,))
                placements.append(Placement(job.id, (gpu_id,)))
        return placements


def settings_of(
    goal: Goal, weights: Floats | None, parameters: DQNParameters, *, sharpness: float = 0.0
) -> NativeSettings:
    """Return the settings of the native library."""
    settings = NativeSettings(
        pointer(weights, c_float),
        sharpness,
        goal.urgency,
        goal.completion,
        parameters.slowdown_budget or inf,
        SPREAD,
        parameters.work,
        ACTIONS,
        PLANS,
    )
    settings.kept = weights
    return settings


def _decided(
    snapshot: Snapshot, capacity: FreeCapacity, jobs: Sequence[Job], settings: NativeSettings
) -> Iterable[tuple[Job, str]]:
    """Return what to start now of jobs with the same priority that need one GPU each."""
    if not jobs or not snapshot.gpus:
        return []
    cluster = ClusterArrays(snapshot.gpus, snapshot.sharing, typical=typical_duration(snapshot))
    for job in jobs:
        cluster.queues[cluster.kind(job)].append(job)
    cluster.hold(capacity, snapshot.time)
    problem, state = cluster.problem(), cluster.state(capacity)
    placed = np.zeros(len(jobs), PLACEMENT)
    made = library.decide_once(
        byref(problem), byref(state), byref(settings), cluster.since.ctypes, placed.ctypes
    )
    if made == -1:
        raise ModelOutputError("the network answered with something that is no finite number")
    if made < 0:
        raise MemoryError("no memory for a decision")
    queues = [iter(queue) for queue in cluster.queues]
    return [(next(queues[kind]), snapshot.gpus[gpu].id) for kind, gpu in placed[:made].tolist()]
