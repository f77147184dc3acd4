"""Computes when the waiting jobs start, in a thread, and passes it to their statuses.

A round of one partition has a budget of CPU time, and is followed by a rest of 19 times what it
took: at most 5 % of a core. What is known of run times and of the accuracy of earlier estimates is
in memory alone, and is learnt anew after a restart.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import thread_time

import structlog

from partita.jobs.job_reconciler import JobReconciler
from partita.models import EstimatedStart
from partita.models.partition import PolicySpec
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import PolicyFailure, Thought
from partita.store.state import State
from partita.times import Times
from partita_policies.errors import PolicyError
from partita_policies.registry import create
from partita_policies.start_times.calibration import Accuracy, Calibration
from partita_policies.start_times.futures import (
    PROBABILITY,
    Outlook,
    StartInterval,
    expected_starts,
)
from partita_policies.start_times.history import PartitionHistory, Past
from partita_policies.types import Policy, Snapshot

__all__ = ["StartEstimates", "differs"]

BUDGET = 2.0
"""Seconds of CPU time of a round, which one decision of a policy may exceed."""
REST = 19.0
"""Seconds of pause for each second of CPU time."""
PATIENCE = 30.0
"""Seconds in which a round must end; the policy may hang."""
_EXPLAINED = 50
"""The first jobs of a queue in whose statuses is written why nothing can be said."""
_NOTICEABLE = 0.2
"""An estimate is written again if an end has moved by more than this part of the wait. An
assumption: each write costs the API server time."""
_LEAST = 10.0
"""Seconds by which it has moved at least."""


@dataclass(slots=True)
class _Estimated:
    history: PartitionHistory = field(default_factory=PartitionHistory)
    calibration: Calibration = field(default_factory=Calibration)
    snapshot: Snapshot | None = None
    """That of the last decision, if jobs wait and no round has used it."""
    waiting: frozenset[str] = frozenset()
    stated: dict[str, EstimatedStart] = field(default_factory=dict)
    """By id of the job."""
    policy: tuple[PolicySpec, Policy] | None = None
    """An object of the active policy for the rounds alone."""
    round: "Thought[tuple[Outlook, float]] | None" = None


class StartEstimates:
    """When the waiting jobs of all partitions start.

    Parameters
    ----------
    jobs
        Takes the estimates into the statuses of jobs.
    """

    def __init__(self, state: State, jobs: JobReconciler, times: Times = Times()) -> None:
        self._state = state
        self._jobs = jobs
        self._times = times
        self._partitions: dict[str, _Estimated] = {}
        self._log = structlog.get_logger().bind(part="estimates")

    def decided(self, result: CycleResult) -> None:
        """Learn from a decision."""
        try:
            if result.snapshot is not None:
                self._learn(result, result.snapshot)
        except Exception:  # noqa: BLE001 - a bug here must not stop the cycles
            self._log.exception("nothing learnt from a decision")

    def _learn(self, result: CycleResult, snapshot: Snapshot) -> None:
        kept = self._partitions.setdefault(snapshot.partition, _Estimated())
        kept.history.observe(snapshot)
        for job, _ in result.placed:
            kept.calibration.started(job.id, snapshot.time)
        placed = {job.id for job, _ in result.placed}
        kept.waiting = frozenset([job.id for job in snapshot.jobs if job.id not in placed])
        kept.calibration.keep(kept.waiting)
        for job_id in kept.stated.keys() - kept.waiting:
            del kept.stated[job_id]
            self._jobs.expect(job_id, None)
        kept.snapshot = snapshot if kept.waiting else None

    def accuracy(self) -> Iterator[tuple[str, Accuracy]]:
        """Yield how well the estimates of each partition came true."""
        for name, kept in self._partitions.items():
            yield name, kept.calibration.accuracy

    async def run(self) -> None:
        """Compute one partition after the other, until cancelled."""
        while True:
            await asyncio.sleep(self._times.estimate_starts)
            for name in list(self._partitions):
                if name not in self._state.partitions:
                    del self._partitions[name]
                    continue
                await asyncio.sleep(REST * await self._round(name, self._partitions[name]))

    async def _round(self, name: str, kept: _Estimated) -> float:
        """Return the seconds of CPU time that a round took."""
        snapshot, kept.snapshot = kept.snapshot, None
        spec = self._state.partitions[name].spec.policy
        hangs = kept.round is not None and not kept.round.over
        if snapshot is None or hangs:
            return 0.0
        kept.round = Thought(spec.name, _work(kept, spec, snapshot, kept.history.past()))
        try:
            async with asyncio.timeout(PATIENCE):
                outlook, seconds = await kept.round.answer
        except (PolicyFailure, TimeoutError) as failure:
            self._log.info("no estimates", partition=name, why=str(failure))
            return 0.0
        now = self._state.partitions.get(name)
        if now is not None and now.spec.policy == spec:
            self._state_all(kept, outlook)
        return seconds

    def _state_all(self, kept: _Estimated, outlook: Outlook) -> None:
        waiting = [job_id for job_id in outlook.unsaid if job_id in kept.waiting]
        for job_id in waiting[:_EXPLAINED]:
            why = outlook.unsaid[job_id].value
            self._publish(kept, job_id, EstimatedStart(as_of=_time(outlook.time), reason=why))
        for job_id, sampled in outlook.starts.items():
            if job_id in kept.waiting:
                stated = kept.calibration.predict(job_id, outlook.time, sampled)
                self._publish(kept, job_id, _estimate(outlook.time, stated))

    def _publish(self, kept: _Estimated, job_id: str, new: EstimatedStart) -> None:
        if differs(kept.stated.get(job_id), new):
            kept.stated[job_id] = new
            self._jobs.expect(job_id, new)


def _work(
    kept: _Estimated, spec: PolicySpec, snapshot: Snapshot, past: Past
) -> Callable[[], tuple[Outlook, float]]:
    """Return what a round does in a thread."""

    def work() -> tuple[Outlook, float]:
        began = thread_time()
        if kept.policy is None or kept.policy[0] != spec:
            try:
                kept.policy = spec, create(spec.name, spec.all_parameters)
            except PolicyError as error:
                raise PolicyFailure(str(error)) from error
        outlook = expected_starts(snapshot, kept.policy[1], past, budget=BUDGET)
        return outlook, thread_time() - began

    return work


def _estimate(time: float, stated: StartInterval) -> EstimatedStart:
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
    if old.latest is None or new.latest is None or old.earliest is None or new.earliest is None:
        return old.latest != new.latest
    wait = (new.latest - new.as_of).total_seconds() if new.as_of else 0.0
    moved = max(abs(old.latest - new.latest), abs(old.earliest - new.earliest)).total_seconds()
    return moved > max(_LEAST, _NOTICEABLE * wait)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
