"""Computes when a request would start if it were made now, and what would make it start sooner.

It uses the scheduling cycle and the sampled futures of the operator, but not what the operator has
learnt since it started: run times are those of profiles and requests, and nobody arrives later.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from partita.console.ask_policies import demand_on
from partita.models import SharedGPUJob
from partita.models.quantities import gib
from partita.scheduling.cycle import run_cycle
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.request import Request
from partita.store.state import State
from partita_policies.errors import PolicyError
from partita_policies.registry import create
from partita_policies.simulator.tasks import with_margin
from partita_policies.start_times.futures import expected_starts
from partita_policies.start_times.history import PartitionHistory

__all__ = ["ExpectedStart", "PlannedStart", "When", "expected_start", "sooner_starts"]

BUDGET = 2.0
"""Seconds of CPU time for one answer."""
_UID = "planned"
_NOTICEABLE = 0.8
"""A change is worth naming if it starts within this part of the time. An assumption."""


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a request starts, in seconds from now, with a probability of 90 %."""

    earliest: float | None = None
    latest: float | None = None
    """Null if nothing can be said."""
    reason: str = ""
    """Why nothing can be said; empty otherwise."""


@dataclass(frozen=True, slots=True)
class SoonerStart:
    """A change of a request, and when the request would start with it, in the same futures."""

    change: str
    start: ExpectedStart


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A job or Pod in a file."""

    kind: str
    namespace: str
    name: str
    partition: str
    start: ExpectedStart
    sooner: list[SoonerStart]
    """Changes with which it would start noticeably sooner, the best one first."""


When = list[PlannedStart]


async def expected_start(request: Request, state: State, now: datetime) -> ExpectedStart:
    """Return when a request would start that is made now."""
    partition = state.partitions.get(request.partition)
    if partition is None:
        there = ", ".join(sorted(state.partitions))
        return ExpectedStart(
            reason=f"there is no GPUPartition {request.partition}: name one of {there}"
        )
    name, spec = request.partition, partition.spec.policy
    jobs = demand_on(name, state, now)
    job = jobs.demand.resolve(replace(request, uid=_UID, submitted=now.timestamp()))
    if isinstance(job, WaitingReason):
        return ExpectedStart(reason=job.message)
    meta = {"name": _UID, "namespace": request.namespace, "uid": _UID}
    asked = {"partition": name, "template": {"spec": {"containers": [{"name": "main"}]}}}
    jobs.waiting[name][_UID] = job
    # The cycle asks of it only whether it still exists.
    state.jobs[_UID] = SharedGPUJob.parse({"metadata": meta, "spec": asked})
    try:
        result = await run_cycle(
            partition,
            state,
            waiting=jobs.waiting[name],
            released=jobs.releases,
            memory=PartitionState(PolicyRunner(spec)),
            now=now,
        )
    finally:
        del state.jobs[_UID]
    if any(placed.id == _UID for placed, _ in result.placed):
        return ExpectedStart(0.0, 0.0)
    snapshot = result.snapshot
    if snapshot is None or all(waiting.id != _UID for waiting in snapshot.jobs):
        return ExpectedStart(reason=result.why[_UID].message)
    try:
        policy = create(spec.name, spec.all_parameters)
    except PolicyError as error:
        return ExpectedStart(reason=str(error))
    history = PartitionHistory()
    history.observe(snapshot)
    outlook = expected_starts(snapshot, policy, history.past(), budget=BUDGET)
    if (found := outlook.starts.get(_UID)) is None:
        return ExpectedStart(reason=outlook.unsaid[_UID].value)
    return ExpectedStart(found.earliest - outlook.time, found.latest - outlook.time)


async def sooner_starts(
    request: Request, start: ExpectedStart, state: State, now: datetime
) -> list[SoonerStart]:
    """Return changes with which a request would start noticeably sooner, the best one first.

    Parameters
    ----------
    start
        When it starts without a change.
    """
    if start.latest == 0.0:
        return []
    found: list[tuple[float, SoonerStart]] = []
    for change, changed in _changes(request, state):
        then = await expected_start(changed, state, now)
        if then.latest is not None and (
            start.latest is None or then.latest < _NOTICEABLE * start.latest
        ):
            found.append((then.latest, SoonerStart(change, then)))
    return [sooner for _, sooner in sorted(found, key=lambda one: one[0])]


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
