"""Computes when waiting jobs and claims start, in a thread, and passes it to their statuses.

A round of one partition has a budget of CPU time. It is computed in turns of about one future, each
of which is followed by a rest of 19 times what it took: at most 5 % of a core, and never long at
once. What is known of run times and of the accuracy of earlier estimates is in memory alone, and is
learnt anew after a restart.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import thread_time

import structlog

from partita.models import EstimatedStart
from partita.models.partition import PolicySpec
from partita.process.reconcilers import Reconcilers
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import PolicyFailure, Thought
from partita.store.state import State
from partita.times import Times
from partita_policies.errors import PolicyError
from partita_policies.registry import create
from partita_policies.start_times.calibration import Accuracy, Calibration
from partita_policies.start_times.futures import (
    PROBABILITY,
    Futures,
    Outlook,
    StartInterval,
    Unsaid,
)
from partita_policies.start_times.history import PartitionHistory, Past
from partita_policies.types import Policy, Snapshot

__all__ = ["StartEstimates", "differs", "estimate"]

BUDGET = 12.0
"""Seconds of CPU time of a round."""
TURN = 0.2
"""Seconds of CPU time after which a turn ends, which one future may exceed."""
REST = 19.0
"""Seconds of pause for each second of CPU time."""
PATIENCE = 30.0
"""Seconds in which a turn must end; the policy may hang."""
_NOTICEABLE = 0.2
"""An estimate is written again if an end has moved by more than this part of the wait. An
assumption: each write costs the API server time."""
_OPEN_NOTICEABLE = 0.5
"""The same of an estimate that has no latest time, for the earliest one is always as far away."""
_LEAST = 10.0
"""Seconds by which it has moved at least."""


@dataclass(slots=True)
class _Round:
    """The futures of one snapshot, under the policy that was active then."""

    policy: PolicySpec
    snapshot: Snapshot
    past: Past
    futures: Futures | None = None


@dataclass(slots=True)
class _Estimated:
    history: PartitionHistory = field(default_factory=PartitionHistory)
    calibration: Calibration = field(default_factory=Calibration)
    snapshot: Snapshot | None = None
    """What the last decision left, if no round has used it."""
    waiting: frozenset[str] = frozenset()
    stated: dict[str, EstimatedStart] = field(default_factory=dict)
    """By id of the job or claim."""
    policy: tuple[PolicySpec, Policy] | None = None
    """An object of the active policy for the rounds alone."""
    round: _Round | None = None
    turn: "Thought[tuple[Outlook | None, float]] | None" = None
    """The last one."""


class StartEstimates:
    """When the waiting jobs and claims of all partitions start.

    Parameters
    ----------
    reconcilers
        Take the estimates into the statuses.
    """

    def __init__(self, state: State, reconcilers: Reconcilers, times: Times = Times()) -> None:
        self._state = state
        self._reconcilers = reconcilers
        self._times = times
        self._partitions: dict[str, _Estimated] = {}
        self._log = structlog.get_logger().bind(part="estimates")

    def decided(self, result: CycleResult) -> None:
        """Learn from a decision."""
        try:
            if result.left is not None:
                self._learn(result, result.left)
        except Exception:  # noqa: BLE001 - a bug here must not stop the cycles
            self._log.exception("nothing learnt from a decision")

    def _learn(self, result: CycleResult, left: Snapshot) -> None:
        kept = self._partitions.setdefault(left.partition, _Estimated())
        # What was placed just now is not in the ledger yet, and may run under another id.
        ledger = tuple(result.allocated.values())
        kept.history.observe(replace(left, jobs=tuple(result.order), gpus=ledger))
        for job, _ in result.placed:
            kept.calibration.started(job.id, left.time)
        kept.snapshot, kept.waiting = left, frozenset([job.id for job in left.jobs])
        kept.calibration.keep(kept.waiting)
        for uid in kept.stated.keys() - kept.waiting:
            del kept.stated[uid]
            self._reconcilers.of(uid).expect(uid, None)

    def accuracy(self) -> Iterator[tuple[str, Accuracy]]:
        """Yield how well the estimates of each partition came true."""
        for name, kept in self._partitions.items():
            yield name, kept.calibration.accuracy

    async def run(self) -> None:
        """Compute in turns, one partition after the other, until cancelled."""
        while True:
            turns = [await self._take_turn(*one) for one in list(self._partitions.items())]
            if not any(turns):
                await asyncio.sleep(self._times.estimate_starts)

    async def _take_turn(self, name: str, kept: _Estimated) -> bool:
        """Compute some futures of a partition; return whether its round goes on."""
        partition = self._state.partitions.get(name)
        if partition is None:
            del self._partitions[name]
            return False
        spec, hangs = partition.spec.policy, kept.turn is not None and not kept.turn.over
        if kept.round is None or kept.round.policy != spec:
            snapshot, kept.snapshot = kept.snapshot, None
            if snapshot is not None and snapshot.jobs:
                kept.round = _Round(spec, snapshot, kept.history.past())
            else:
                kept.round = None
        if hangs or kept.round is None:
            return False
        kept.turn = Thought(spec.name, _work(kept, kept.round))
        try:
            async with asyncio.timeout(PATIENCE):
                outlook, seconds = await kept.turn.answer
        except (PolicyFailure, TimeoutError) as failure:
            self._log.info("no estimates", partition=name, why=str(failure))
            unsaid = {job.id: Unsaid.POLICY for job in kept.round.snapshot.jobs}
            outlook, seconds = Outlook(kept.round.snapshot.time, {}, unsaid), 0.0
        now = self._state.partitions.get(name)
        if outlook is not None:
            if now is not None and now.spec.policy == spec:
                self._state_all(kept, outlook)
            kept.round = None
        await asyncio.sleep(REST * seconds)
        return outlook is None

    def _state_all(self, kept: _Estimated, outlook: Outlook) -> None:
        as_of = _time(outlook.time)
        for uid, why in outlook.unsaid.items():
            if uid in kept.waiting:
                earliest = outlook.not_before.get(uid)
                known = None if earliest is None else _time(earliest)
                said = EstimatedStart(earliest=known, as_of=as_of, reason=why.value)
                self._publish(kept, uid, said)
        for uid, sampled in outlook.starts.items():
            if uid in kept.waiting:
                stated = kept.calibration.predict(uid, outlook.time, sampled)
                self._publish(kept, uid, estimate(outlook.time, stated))

    def _publish(self, kept: _Estimated, uid: str, new: EstimatedStart) -> None:
        if differs(kept.stated.get(uid), new):
            kept.stated[uid] = new
            self._reconcilers.of(uid).expect(uid, new)


def _work(kept: _Estimated, current: _Round) -> Callable[[], tuple[Outlook | None, float]]:
    """Return the work of a turn: it answers with what all futures say, once drawn, and its time."""

    def work() -> tuple[Outlook | None, float]:
        began, spec, futures = thread_time(), current.policy, current.futures
        if kept.policy is None or kept.policy[0] != spec:
            try:
                kept.policy = spec, create(spec.name, spec.all_parameters)
            except PolicyError as error:
                raise PolicyFailure(str(error)) from error
        if futures is None:
            futures = Futures(current.snapshot, kept.policy[1], current.past, budget=BUDGET)
            current.futures = futures
        while goes_on := futures.draw():
            if thread_time() - began > TURN:
                break
        return None if goes_on else futures.outlook(), thread_time() - began

    return work


def estimate(time: float, stated: StartInterval) -> EstimatedStart:
    """Return an interval that was predicted at a time as a job's status has it."""
    return EstimatedStart(
        earliest=_time(stated.earliest),
        latest=_time(stated.latest),
        probability=PROBABILITY,
        as_of=_time(time),
    )


def differs(old: EstimatedStart | None, new: EstimatedStart) -> bool:
    """Return whether an estimate has changed so much that it is written again."""
    if old is None or old.reason != new.reason:
        return True
    last = new.latest or new.earliest
    if last is None or new.as_of is None:
        return last != (old.latest or old.earliest)
    ends = (old.earliest, new.earliest), (old.latest, new.latest)
    if any((before is None) != (now is None) for before, now in ends):
        return True
    moved = max(abs((now - before).total_seconds()) for before, now in ends if before and now)
    part = _NOTICEABLE if new.latest else _OPEN_NOTICEABLE
    return moved > max(_LEAST, part * (last - new.as_of).total_seconds())


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
