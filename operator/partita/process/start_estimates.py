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
from partita.scheduling.policy_runner import PolicyFailure, PolicyRunner, Thought
from partita.store.state import State
from partita.times import Times
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
from partita_policies.types import Snapshot

__all__ = ["StartEstimates", "differs", "estimate", "unsaid"]

BUDGET = 12.0
"""Seconds of CPU time of a round."""
SHADOW_BUDGET = 2.0
"""The same for a shadow policy: the first jobs of the queue suffice to compare policies."""
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
    """The futures of one snapshot under a policy, first under the one that is active then."""

    spec: PolicySpec
    snapshot: Snapshot
    past: Past
    shadow: str = ""
    """The shadow policy; empty for the active one."""
    active: Outlook | None = None
    """What they say under the active one, once that is known."""
    futures: Futures | None = None

    def turn(self) -> tuple[Outlook | None, float]:
        """Sample futures for a while, in a thread.

        Return what they say, if the round ends, and the CPU time.
        """
        began = thread_time()
        futures = self.futures = self.futures or self._create()
        while goes_on := futures.draw():
            if thread_time() - began > TURN:
                break
        return None if goes_on else futures.outlook(), thread_time() - began

    def _create(self) -> Futures:
        spec, budget = self.spec, SHADOW_BUDGET if self.shadow else BUDGET
        policy = create(self.shadow) if self.shadow else create(spec.name, spec.all_parameters)
        return Futures(self.snapshot, policy, self.past, budget=budget)

    def following(self, active: Outlook) -> "_Round | None":
        """Return the round of the next shadow policy, if there is one and anything to compare."""
        names = ("", *self.spec.shadow)
        left = names[names.index(self.shadow) + 1 :]
        if not left or not active.starts:
            return None
        return _Round(self.spec, self.snapshot, self.past, left[0], active)


@dataclass(slots=True)
class _Estimated:
    history: PartitionHistory = field(default_factory=PartitionHistory)
    calibration: Calibration = field(default_factory=Calibration)
    snapshot: Snapshot | None = None
    """What the last decision left, if no round has used it."""
    waiting: frozenset[str] = frozenset()
    round: _Round | None = None
    turns: "dict[str, Thought[tuple[Outlook | None, float]]]" = field(default_factory=dict)
    """The last one of each policy."""


@dataclass
class StartEstimates:
    """When the waiting jobs and claims of all partitions start.

    Parameters
    ----------
    reconcilers
        Take the estimates into the statuses.
    runner
        Returns the policies of a partition; None before its first cycle.
    """

    state: State
    reconcilers: Reconcilers
    runner: Callable[[str], PolicyRunner | None]
    times: Times = Times()

    def __post_init__(self) -> None:
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
        before, kept.waiting = kept.waiting, frozenset([job.id for job in left.jobs])
        kept.snapshot = left
        kept.calibration.keep(kept.waiting)
        # An earlier operator may have stated when those start that wait for something else now.
        for uid in (before | result.why.keys()) - kept.waiting:
            self.reconcilers.of(uid).expect(uid, None)

    def accuracy(self) -> Iterator[tuple[str, Accuracy]]:
        """Yield how well the estimates of each partition came true."""
        for name, kept in self._partitions.items():
            yield name, kept.calibration.accuracy

    async def run(self) -> None:
        """Compute in turns, one partition after the other, until cancelled."""
        while True:
            turns = [await self._try_turn(*one) for one in list(self._partitions.items())]
            if not any(turns):
                await asyncio.sleep(self.times.estimate_starts)

    async def _try_turn(self, name: str, kept: _Estimated) -> bool:
        """Take a turn; log an exception, so that a bug here does not stop the operator."""
        try:
            return await self._take_turn(name, kept)
        except Exception:  # noqa: BLE001 - see the docstring
            self._log.exception("no estimates", partition=name)
            kept.round = None
            return False

    async def _take_turn(self, name: str, kept: _Estimated) -> bool:
        """Compute some futures of a partition; return whether its round goes on."""
        partition = self.state.partitions.get(name)
        if partition is None:
            del self._partitions[name]
            return False
        spec = partition.spec.policy
        if kept.round is None or kept.round.spec != spec:
            snapshot, kept.snapshot = kept.snapshot, None
            if snapshot is not None and snapshot.jobs:
                kept.round = _Round(spec, snapshot, kept.history.past())
            else:
                kept.round = None
        if (current := kept.round) is None:
            return False
        before = kept.turns.get(current.shadow)
        if before is not None and not before.over:  # the policy hangs
            kept.round = None
            return False
        turn = kept.turns[current.shadow] = Thought(current.shadow or spec.name, current.turn)
        try:
            async with asyncio.timeout(PATIENCE):
                outlook, seconds = await turn.answer
        except (PolicyFailure, TimeoutError) as failure:
            self._log.info("no estimates", partition=name, why=str(failure))
            why = {job.id: Unsaid.POLICY for job in current.snapshot.jobs}
            outlook, seconds = Outlook(current.snapshot.time, {}, why), 0.0
        now = self.state.partitions.get(name)
        if outlook is not None:
            if now is not None and now.spec.policy == spec:
                self._use(kept, current, outlook, self.runner(name))
            kept.round = current.following(current.active or outlook)
        await asyncio.sleep(REST * seconds)
        return kept.round is not None

    def _use(
        self, kept: _Estimated, current: _Round, outlook: Outlook, runner: PolicyRunner | None
    ) -> None:
        """Publish what the futures say under the active policy; count what a shadow changes."""
        if current.active is None:
            self._state_all(kept, current.snapshot.partition, outlook)
        elif runner is not None and runner.spec == current.spec:
            runner.shadow_counts[current.shadow].waits.add(current.active, outlook)

    def _state_all(self, kept: _Estimated, partition: str, outlook: Outlook) -> None:
        # Of those that waited at the last decision: some may wait for something else since then.
        waiting = kept.waiting & self.reconcilers.jobs.demand.waiting.get(partition, {}).keys()
        for uid in outlook.unsaid:
            if uid in waiting:
                self._publish(uid, unsaid(outlook, uid))
        for uid, sampled in outlook.starts.items():
            if uid in waiting:
                stated = kept.calibration.predict(uid, outlook.time, sampled)
                self._publish(uid, estimate(outlook.time, stated))

    def _publish(self, uid: str, new: EstimatedStart) -> None:
        reconciler = self.reconcilers.of(uid)
        if differs(reconciler.expected(uid), new):
            reconciler.expect(uid, new)


def estimate(time: float, stated: StartInterval) -> EstimatedStart:
    """Return an interval that was predicted at a time as a job's status has it."""
    return EstimatedStart(
        earliest=_time(stated.earliest),
        latest=_time(stated.latest),
        probability=PROBABILITY,
        as_of=_time(time),
    )


def unsaid(outlook: Outlook, uid: str) -> EstimatedStart:
    """Return why the futures say no latest time, with the earliest one if they say that."""
    earliest = outlook.not_before.get(uid)
    return EstimatedStart(
        earliest=None if earliest is None else _time(earliest),
        as_of=_time(outlook.time),
        reason=outlook.unsaid[uid].value,
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
