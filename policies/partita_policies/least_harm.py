"""Each job where it and the jobs beside it lose the least time.

A job that starts on a GPU runs for its own duration times its predicted slowdown, and lengthens
what is left of the jobs beside it. It gets the GPU for which this sum, the time that it adds, is
least. The rule looks at one job at a time and simulates nothing; `planner` does both.

The objective of the partition decides about the rest:

- Completion: the shortest job first (W. E. Smith, "Various optimizers for single-stage production",
  Naval Research Logistics Quarterly 3, 1956). A job waits if it would add less time after the next
  end of a job on the GPU.
- Makespan: the longest job first (R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM
  Journal on Applied Mathematics 17, 1969). No job waits where it fits.
- Packing: as `fgd`.
- Balanced: as Completion, but of the GPUs on which nobody is predicted to become slower than
  `balanced_slowdown` a job gets the one with the least free memory.

A job without a profile says too little for a prediction: it gets the GPU with the fewest jobs.
"""

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import ClassVar, NamedTuple

from pydantic import Field

from partita_policies.capacity import Choice, FreeCapacity, FreeGPU
from partita_policies.fgd import FGD, FGDParameters
from partita_policies.forecast import (
    LEAST_LEFT,
    is_measured,
    known_duration,
    outlook_of,
    slowdowns_of,
    typical_duration,
)
from partita_policies.incremental import CapacityCache
from partita_policies.interference import Load
from partita_policies.requests import RequestCache
from partita_policies.types import (
    GPU,
    Job,
    Objective,
    Parameters,
    Placement,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
)

__all__ = ["LeastHarm", "LeastHarmParameters"]

_GPUS = 64
"""Most GPUs that are compared for a job: an assumption. A prediction takes some 20 µs."""


class LeastHarmParameters(Parameters):
    """Parameters of `LeastHarm`."""

    slowdown_budget: float | None = Field(
        default=None,
        ge=1,
        description=(
            "The largest predicted slowdown of any job relative to running alone, such as 1.5; "
            "unlimited by default."
        ),
    )
    balanced_slowdown: float = Field(
        default=1.25,
        ge=1,
        description=(
            "Under the objective Balanced, the largest predicted slowdown with which a job is "
            "placed on the fullest GPU that it fits."
        ),
    )


class _Share(NamedTuple):
    """A job on a GPU, as far as it is predicted."""

    left: float
    """Seconds of running alone; infinity for a service."""
    load: Load
    profile: Profile | None


class _Harm(NamedTuple):
    """What the start of a job on a GPU is predicted to do."""

    slowest: float
    """The largest slowdown."""
    added: float
    """Seconds that it adds to the completion times of all jobs."""
    added_later: float
    """The same if it waits for the next end of a job there; infinity if none is known to end."""


class LeastHarm:
    """Start each job where it and the jobs beside it lose the least time."""

    parameters: ClassVar[type[Parameters]] = LeastHarmParameters

    def __init__(self, parameters: LeastHarmParameters) -> None:
        self.slowdown_budget = parameters.slowdown_budget
        self._balanced_slowdown = parameters.balanced_slowdown
        self._capacity, self._requests = CapacityCache(), RequestCache()
        self._packing = FGD(FGDParameters())

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Place the jobs by descending priority, then by their duration."""
        if snapshot.objective is Objective.PACKING:
            return self._packing.decide(snapshot)
        self._requests.begin()
        typical = typical_duration(snapshot)
        balanced = snapshot.objective is Objective.BALANCED
        placements: list[Placement] = []
        with self._capacity.of(snapshot) as capacity:
            for job in capacity.candidates(_in_order(snapshot, typical, capacity)):
                found = capacity.find(job, Choice.TIGHTEST if balanced else Choice.LEAST_LOADED)
                if found is not None and job.gpus == 1 and not job.lasting:
                    found = self._chosen(job, found, snapshot, capacity, typical)
                if found is not None:
                    capacity.allocate(job, found)
                    placements.append(Placement(job.id, found))
        return placements

    def _chosen(
        self,
        job: Job,
        proposed: tuple[str, ...],
        snapshot: Snapshot,
        capacity: FreeCapacity,
        typical: float,
    ) -> tuple[str, ...] | None:
        """Return on which GPU a job starts; None if it waits."""
        budget = self.slowdown_budget or inf
        balanced = snapshot.objective is Objective.BALANCED
        packs_below = min(self._balanced_slowdown, budget) if balanced else 0.0

        def harm_on(gpu_id: str) -> _Harm:
            holders, gpu = capacity[gpu_id].holders, capacity[gpu_id].gpu
            there = [self._share(one, gpu, snapshot, typical) for one in holders.values()]
            return _harm(self._share(job, gpu, snapshot, typical), there, snapshot.sharing)

        if balanced:
            if harm_on(proposed[0]).slowest <= packs_below:
                return proposed
        elif not capacity[proposed[0]].holders or (not is_measured(job.profile) and budget == inf):
            return proposed
        fitting = (g.id for g in snapshot.gpus if capacity.why_not(job, g.id) is None)
        best, least = None, (True, inf)
        for gpu_id in islice(fitting, _GPUS):
            harm = harm_on(gpu_id)
            waits = snapshot.objective is not Objective.MAKESPAN and harm.added_later < harm.added
            if waits or (harm.slowest > budget and _any_ends(capacity[gpu_id])):
                continue
            packs = harm.slowest <= packs_below
            rank = not packs, float(capacity[gpu_id].memory) if packs else harm.added
            if rank < least:
                best, least = (gpu_id,), rank
        return best

    def _share(self, job: Job | RunningJob, gpu: GPU, snapshot: Snapshot, typical: float) -> _Share:
        load, seconds = self._requests.of(job).on(gpu, typical, "mean", _mean)
        if isinstance(job, RunningJob):
            seconds = max(seconds - job.elapsed(snapshot.time), LEAST_LEFT * seconds)
        return _Share(seconds, load, job.profile)


def _in_order(snapshot: Snapshot, typical: float, capacity: FreeCapacity) -> list[Job]:
    longest_first = snapshot.objective is Objective.MAKESPAN

    def key(job: Job) -> tuple[int, float]:
        known = known_duration(job)
        seconds = typical if known is None else known
        return -job.priority, -seconds if longest_first else seconds

    return sorted(capacity.candidates(snapshot.jobs), key=key)


def _any_ends(free: FreeGPU) -> bool:
    return any(not one.lasting for one in free.holders.values())


def _mean(job: Job | RunningJob, gpu: GPU, typical: float) -> tuple[Load, float]:
    forecast = outlook_of(job, gpu, typical)
    return forecast.mean, forecast.duration


def _harm(new: _Share, there: Sequence[_Share], sharing: Sharing) -> _Harm:
    before = _slowdowns(there, sharing)
    slowest, added = _added(new, there, before, sharing)
    measured = all(is_measured(one.profile) for one in (new, *there))
    ends = [one.left * slower for one, slower in zip(there, before, strict=True)]
    wait = min(ends, default=inf)
    if wait == inf or not measured:
        return _Harm(slowest, added, inf)
    later = [
        one._replace(left=one.left - wait / slower)
        for one, slower, end in zip(there, before, ends, strict=True)
        if end > wait
    ]
    _, after_wait = _added(new, later, _slowdowns(later, sharing), sharing)
    return _Harm(slowest, added, wait + after_wait)


def _added(
    new: _Share, there: Sequence[_Share], before: Sequence[float], sharing: Sharing
) -> tuple[float, float]:
    """Return the largest slowdown once a job has started, and the seconds that it adds."""
    *after, own = _slowdowns([*there, new], sharing)
    lost = [
        (slower - was) * one.left
        for one, slower, was in zip(there, after, before, strict=True)
        if one.left < inf
    ]
    return max(own, *after, 1.0), own * new.left + sum(lost)


def _slowdowns(jobs: Sequence[_Share], sharing: Sharing) -> list[float]:
    return slowdowns_of([one.load for one in jobs], [one.profile for one in jobs], sharing)
