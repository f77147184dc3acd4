"""Computes when a request would start if it were made now, and what would make it start sooner.

It uses the scheduling cycle and the sampled futures of the operator, but not what the operator has
learnt since it started: run times are those of profiles and requests, and nobody arrives later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from types import MappingProxyType

from partita.console.ask_policies import demand_on
from partita.models import EstimatedStart, SharedGPUJob
from partita.models.quantities import gib
from partita.process.start_estimates import estimate, unsaid
from partita.scheduling.cycle import Cycle
from partita.scheduling.demand import Demand
from partita.scheduling.gpu_state import readable_partition
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.request import Request
from partita.scheduling.waiting_jobs import BEHIND_OWN_JOBS
from partita.store.state import State
from partita_policies.errors import PolicyError
from partita_policies.registry import create
from partita_policies.simulator.tasks import with_margin
from partita_policies.start_times.futures import (
    NOTICEABLE,
    Futures,
    Outlook,
    StartInterval,
    Unsaid,
)
from partita_policies.start_times.history import PartitionHistory
from partita_policies.types import Job, Snapshot

__all__ = ["PartitionAccuracy", "PlannedStart", "StartPlanner", "When"]

BUDGET = 2.0
"""Seconds of CPU time for an answer."""
_FIRST = 1.5
"""Of these, most for those of the partition that is asked for; the others share the rest."""
_ENOUGH = 0.15
"""Seconds of CPU time after which the fewest futures suffice, so that the answer is not late."""
_UID = "planned"


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
    unreached: list[str]
    """Changes with which its start was not reached in the CPU time of an answer."""


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
    budget
        Seconds of CPU time for the futures of one answer, with all changes.
    """

    def __init__(self, state: State, now: datetime, budget: float = BUDGET) -> None:
        self._state, self._now, self._budget = state, now, budget
        self._asked: dict[str, tuple[Demand, PolicyRunner]] = {}
        """What waits in each partition that is asked about, and its policy."""
        self._left = self._budget

    async def plan(self, kind: str, name: str, request: Request) -> PlannedStart:
        """Return when a request would start, and what would make it start noticeably sooner.

        Changes that leave it in its partition are tried in its own futures.
        """
        self._left = self._budget
        changes = dict(_changes(request, self._state))
        here = {c: one for c, one in changes.items() if one.partition == request.partition}
        starts, after = await self._starts(request, here)
        start = starts.pop("")
        if (wait := _wait(start)) == 0:
            changes.clear()
        for change, changed in changes.items():
            if change not in starts:
                starts[change] = (await self._starts(changed))[0][""]
        tried = [SoonerStart(change, one) for change, one in starts.items()]
        sooner = [one for one in tried if _wait(one.start) < NOTICEABLE * wait]
        sooner.sort(key=lambda one: _wait(one.start))
        unreached = [c for c, one in starts.items() if one.reason.startswith(Unsaid.TOO_FAR)]
        where = kind, request.namespace, name, request.partition
        return PlannedStart(*where, start, after, sooner, unreached)

    async def _starts(
        self, request: Request, changes: Mapping[str, Request] = MappingProxyType({})
    ) -> tuple[dict[str, EstimatedStart], str]:
        """Return when a request would start ("") and with each change, and after whose end.

        The changes are tried only if it waits for room, and does not last: policies do not see
        lasting jobs.
        """
        asked = await self._waits(request)
        if isinstance(asked, EstimatedStart):
            return {"": asked}, ""
        left, job = asked
        starts, changed = dict[str, EstimatedStart](), {"": job}
        for change, one in changes.items() if not job.lasting else ():
            waits = await self._waits(one)
            if isinstance(waits, EstimatedStart):
                starts[change] = waits
            else:
                changed[change] = replace(waits[1], id=change)
        try:
            outlook = self._outlook(request.partition, left, list(changed.values()))
        except PolicyError as error:
            return {"": self._unsaid(str(error))}, ""
        for change, tried in changed.items():
            found = outlook.starts.get(tried.id)
            said = estimate(outlook.time, found) if found else unsaid(outlook, tried.id)
            no_sooner = change and found and not outlook.is_sooner(_UID, change)
            starts[change] = starts[""] if no_sooner else said
        if outlook.unsaid.get(_UID) is Unsaid.TOO_FAR:
            why = Unsaid.TOO_FAR + self._expected_before(left)
            starts[""] = starts[""].model_copy(update={"reason": why})
        return starts, self._named(outlook.awaited(_UID), request.partition)

    def _outlook(self, partition: str, left: Snapshot, jobs: Sequence[Job]) -> Outlook:
        """Return when the first one of these starts, and each of the others in its place."""
        spec, history = self._state.partitions[partition].spec.policy, PartitionHistory()
        history.observe(left)
        futures = Futures(
            left,
            create(spec.name, spec.all_parameters),
            history.past(),
            budget=min(max(self._left, 0.0), _FIRST),
            only=jobs[0].id,
            changed=jobs[1:],
            enough=_ENOUGH - (self._budget - self._left),
        )
        outlook = futures.complete()
        self._left -= futures.seconds
        return outlook

    def _expected_before(self, left: Snapshot) -> str:
        """Return what the operator has said of the job right before the request."""
        place = [job.id for job in left.jobs].index(_UID)
        before = self._state.jobs.get(left.jobs[place - 1].id)
        said = before.status.estimated_start if place and before is not None else None
        if said is None or said.latest is None:
            return ""
        when = f"{said.latest:%Y-%m-%d %H:%M} UTC"
        return f"; {left.jobs[place - 1].name}, the last one before it, is to start by {when}"

    def _named(self, ended: str, partition: str) -> str:
        waiting = self._asked[partition][0].waiting[partition]
        if ended in waiting:
            return waiting[ended].name
        users = [f"{one.namespace}/{one.user}" for one in self._state.allocated(ended).values()]
        return next(iter(users), "")

    async def _waits(self, request: Request) -> tuple[Snapshot, Job] | EstimatedStart:
        """Run a cycle with a request; return what it leaves if the request waits for room then."""
        state, now = self._state, self._now
        partition = readable_partition(request.partition, state)
        if isinstance(partition, WaitingReason):
            return self._unsaid(partition.message)
        name, spec = request.partition, partition.spec.policy
        if name not in self._asked:
            runner = PolicyRunner(spec.model_copy(update={"shadow": ()}))
            self._asked[name] = demand_on(name, state, now), runner
        demand, runner = self._asked[name]
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
            if waiting.is_behind(_UID):
                return self._unsaid(BEHIND_OWN_JOBS.message)
            result = await Cycle(
                partition,
                state,
                waiting=waiting,
                released=demand.releases,
                memory=PartitionState(runner),
                now=now,
            ).run()
        finally:
            del state.jobs[_UID], waiting[_UID]
        if any(placed.id == _UID for placed, _ in result.placed):
            at_once = now.timestamp()
            return estimate(at_once, StartInterval(at_once, at_once, at_once))
        if (left := result.left) is not None:
            for one in left.jobs:
                if one.id == _UID:
                    return left, one
        return self._unsaid(result.why[_UID].message)

    def _unsaid(self, why: str) -> EstimatedStart:
        return EstimatedStart(as_of=self._now, reason=why)


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
