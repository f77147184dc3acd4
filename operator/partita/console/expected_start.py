"""Computes when a request would start if it were made now, and what would make it start sooner.

It uses the scheduling cycle and the sampled futures of the operator, but not what the operator has
learnt since it started: run times are those of profiles and requests, and nobody arrives later.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from partita.console.ask_policies import demand_on
from partita.models import EstimatedStart, SharedGPUJob
from partita.models.quantities import gib
from partita.process.start_estimates import estimate, unsaid
from partita.scheduling.cycle import run_cycle
from partita.scheduling.demand import Demand
from partita.scheduling.gpu_state import readable_partition
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.request import Request
from partita.store.state import State
from partita_policies.errors import PolicyError
from partita_policies.registry import create
from partita_policies.simulator.tasks import with_margin
from partita_policies.start_times.futures import StartInterval, expected_starts
from partita_policies.start_times.history import PartitionHistory

__all__ = ["PartitionAccuracy", "PlannedStart", "StartPlanner", "When"]

BUDGET = 2.0
"""Seconds of CPU time for one answer."""
_UID = "planned"
_NOTICEABLE = 0.8
"""A change is worth naming if it starts within this part of the time. An assumption."""


@dataclass(frozen=True, slots=True)
class SoonerStart:
    """A change of a request, and when the request would start with it, in the same futures."""

    change: str
    start: EstimatedStart


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A job or Pod in a file."""

    kind: str
    namespace: str
    name: str
    partition: str
    start: EstimatedStart
    after: str
    """The job or Pod with whose end it starts in most futures; empty if there is none."""
    sooner: list[SoonerStart]
    """Changes with which it would start noticeably sooner, the best one first."""


@dataclass(frozen=True, slots=True)
class PartitionAccuracy:
    """How well the first estimate of each job's start came true, since the operator began."""

    partition: str
    started: int
    """Jobs that started after it had been estimated when."""
    held: int
    """Jobs of these that started within the interval."""
    median_width: float
    """Median length of the intervals of the last 300 of these jobs."""
    median_error: float
    """Median time from the midpoint of the interval to the start, of the last 300."""


When = list[PlannedStart] | list[PartitionAccuracy]


class StartPlanner:
    """Says when a request would start.

    Parameters
    ----------
    now
        When it would be made.
    """

    def __init__(self, state: State, now: datetime) -> None:
        self._state, self._now = state, now
        self._demand: dict[str, Demand] = {}

    async def start(self, request: Request) -> tuple[EstimatedStart, str]:
        """Return when a request would start, and with whose end in most futures, if any."""
        state, now = self._state, self._now
        partition = readable_partition(request.partition, state)
        if isinstance(partition, WaitingReason):
            return self._unsaid(partition.message)
        name, spec = request.partition, partition.spec.policy
        if name not in self._demand:
            self._demand[name] = demand_on(name, state, now).demand
        demand = self._demand[name]
        waiting = demand.waiting[name]
        job = demand.resolve(replace(request, uid=_UID, submitted=now.timestamp()))
        if isinstance(job, WaitingReason):
            return self._unsaid(job.message)
        meta = {"name": _UID, "namespace": request.namespace, "uid": _UID}
        asked = {"partition": name, "template": {"spec": {"containers": [{"name": "main"}]}}}
        waiting[_UID] = job
        # The cycle asks of it only whether it still exists.
        state.jobs[_UID] = SharedGPUJob.parse({"metadata": meta, "spec": asked})
        try:
            result = await run_cycle(
                partition,
                state,
                waiting=waiting,
                released=demand.releases,
                memory=PartitionState(PolicyRunner(spec.model_copy(update={"shadow": ()}))),
                now=now,
            )
        finally:
            del state.jobs[_UID], waiting[_UID]
        if any(placed.id == _UID for placed, _ in result.placed):
            at_once = now.timestamp()
            return estimate(at_once, StartInterval(at_once, at_once, at_once)), ""
        left = result.left
        if left is None or all(waits.id != _UID for waits in left.jobs):
            return self._unsaid(result.why[_UID].message)
        try:
            policy = create(spec.name, spec.all_parameters)
        except PolicyError as error:
            return self._unsaid(str(error))
        history = PartitionHistory()
        history.observe(left)
        outlook = expected_starts(left, policy, history.past(), budget=BUDGET)
        if (found := outlook.starts.get(_UID)) is None:
            return unsaid(outlook, _UID), ""
        ended = outlook.awaited(_UID)
        users = [f"{entry.namespace}/{entry.user}" for entry in state.allocated(ended).values()]
        after = waiting[ended].name if ended in waiting else next(iter(users), "")
        return estimate(outlook.time, found), after

    def _unsaid(self, why: str) -> tuple[EstimatedStart, str]:
        return EstimatedStart(as_of=self._now, reason=why), ""

    async def sooner(self, request: Request, start: EstimatedStart) -> list[SoonerStart]:
        """Return changes with which a request would start noticeably sooner, the best one first.

        Parameters
        ----------
        start
            When it starts without a change.
        """
        if (wait := _wait(start)) == 0:
            return []
        tried = [
            SoonerStart(change, (await self.start(changed))[0])
            for change, changed in _changes(request, self._state)
        ]
        noticeable = [one for one in tried if _wait(one.start) < _NOTICEABLE * wait]
        return sorted(noticeable, key=lambda one: _wait(one.start))


def _wait(start: EstimatedStart) -> float:
    """Return the seconds after which it starts at the latest; infinite if nothing can be said."""
    if start.latest is None or start.as_of is None:
        return inf
    return (start.latest - start.as_of).total_seconds()


def _changes(request: Request, state: State) -> Iterator[tuple[str, Request]]:
    """Yield requests that may start sooner, each with one change."""
    if request.memory:
        less, why = request.memory // 2, "if that is enough"
        profile = state.profiles.profile(request.namespace, request.application)
        if profile is not None and (peak := with_margin(profile.peak_memory)) < request.memory:
            less, why = peak, "as much as its application has used, and 10 % more"
        limit = None if request.memory_limit is None else max(request.memory_limit, less)
        yield f"{gib(less)} of GPU memory, {why}", replace(request, memory=less, memory_limit=limit)
    if (request.threads or 100) > 50 and not request.slice:
        yield "50 % of the threads", replace(request, threads=50)
    for name, partition in state.partitions.items():
        if name != request.partition:
            yield f"partition {name}", replace(request, partition=name, slice="")
        elif (cap := partition.spec.priority_cap(request.namespace)) > request.priority:
            yield f"priority {cap}", replace(request, priority=cap)
