"""Compares recorded decisions with those of other policies on the same snapshots.

Each snapshot is evaluated independently: a job that a policy starts in one snapshot does not
change the next one. `partita_research.sampled_waits` continues some of them, and
`partita_research.simulator` simulates the consequences.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter

from typing_extensions import override

from partita_policies.checks import complaints_about
from partita_policies.recordings import Recorded
from partita_policies.start_times.wait_change import WaitChange
from partita_policies.types import GPU, Objective, Placement, Policy, Snapshot

__all__ = ["Change", "Difference", "Replay", "changes_of", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """A job for which a policy decides differently from the recording."""

    job: str
    """Name of the job."""
    kind: str
    """It starts `earlier`, `later`, `elsewhere` or beside `others`."""
    done: tuple[str, ...]
    """GPUs on which it was started; empty if it had to wait."""
    instead: tuple[str, ...]
    """GPUs on which the policy would have started it; empty if it would have waited."""

    @override
    def __str__(self) -> str:
        before, after = ", ".join(self.done), ", ".join(self.instead)
        match self.kind:
            case "earlier":
                return f"{self.job} starts on {after} instead of waiting"
            case "later":
                return f"{self.job} waits instead of starting on {before}"
            case "others":
                return f"{self.job} starts on {after} beside other jobs"
            case _:
                return f"{self.job} starts on {after} instead of {before}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded decision from which a policy differs."""

    file: str
    line: int
    time: float
    """Seconds since the epoch."""
    partition: str
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Replay:
    """The decisions of one policy on recorded snapshots.

    Attributes
    ----------
    same
        Number of decisions that are equal to the recorded ones.
    failures
        File, line and reason for each snapshot on which the policy raised an exception or broke
        a rule of the guard.
    seconds
        Latency of each decision.
    """

    name: str
    policy: Policy
    objective: Objective | None = None
    """Replaces that of the recorded snapshots."""
    same: int = 0
    different: list[Difference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    started: int = 0
    """Number of jobs that the policy would have started."""
    waits: WaitChange = field(default_factory=WaitChange)
    """How much longer jobs would have waited than under the recorded policy."""

    def asked(self, snapshot: Snapshot) -> Snapshot:
        """Return a recorded snapshot as the policy gets it."""
        return snapshot if self.objective is None else replace(snapshot, objective=self.objective)

    def ask(self, recorded: Recorded) -> None:
        """Run the policy on one snapshot and compare its decision with the recorded one."""
        snapshot, where = self.asked(recorded.snapshot), f"{recorded.file}:{recorded.line}"
        began = perf_counter()
        try:
            answer = list(self.policy.decide(snapshot))
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is reported
            self.failures.append(f"{where}: it raised {type(error).__name__}: {error}")
            return
        finally:
            self.seconds.append(perf_counter() - began)
        if not all(isinstance(placement, Placement) for placement in answer):
            self.failures.append(f"{where}: it answered {answer!r}, no placements"[:300])
            return
        for complaint in complaints_about(snapshot, answer):
            self.failures.append(f"{where}: {complaint.problem}")
            return
        self.started += len(answer)
        if same(snapshot, recorded.decision.placements, answer):
            self.same += 1
            return
        changes = changes_of(snapshot, recorded.decision.placements, answer)
        self.different.append(
            Difference(recorded.file, recorded.line, snapshot.time, snapshot.partition, changes)
        )

    @property
    def changed(self) -> Counter[str]:
        """Count the changes of each kind."""
        return Counter(c.kind for difference in self.different for c in difference.changes)

    @property
    def mean_seconds(self) -> float:
        """Mean decision latency."""
        return fmean(self.seconds) if self.seconds else 0.0


def same(snapshot: Snapshot, done: Sequence[Placement], other: Sequence[Placement]) -> bool:
    """Return whether two decisions are equivalent.

    They are if the same jobs start beside the same jobs. GPUs of one node that are of one kind and
    have the same allocations are interchangeable.
    """
    return _colocation(snapshot, done) == _colocation(snapshot, other)


def changes_of(
    snapshot: Snapshot, done: Sequence[Placement], other: Sequence[Placement]
) -> tuple[Change, ...]:
    """Return the jobs for which two decisions differ, in queue order."""
    before, after = _colocation(snapshot, done), _colocation(snapshot, other)
    gpus, instead = ({p.job: p.gpus for p in placements} for placements in (done, other))
    return tuple(
        _change(job.name, gpus.get(job.id, ()), instead.get(job.id, ()))
        for job in snapshot.jobs
        if before.get(job.id) != after.get(job.id)
    )


def _change(job: str, done: tuple[str, ...], instead: tuple[str, ...]) -> Change:
    if not done:
        kind = "earlier"
    elif not instead:
        kind = "later"
    else:
        kind = "others" if set(done) == set(instead) else "elsewhere"
    return Change(job, kind, done, instead)


def _colocation(snapshot: Snapshot, placements: Sequence[Placement]) -> dict[str, object]:
    """Return the kinds of GPU of each job that starts, and the jobs that start on them."""
    beside: dict[str, set[str]] = {}
    for placement in placements:
        for gpu in placement.gpus:
            beside.setdefault(gpu, set()).add(placement.job)
    kind = {gpu.id: _kind(gpu) for gpu in snapshot.gpus}
    return {
        p.job: Counter((kind[g], frozenset(beside[g])) for g in p.gpus if g in kind)
        for p in placements
    }


def _kind(gpu: GPU) -> tuple[object, ...]:
    held = frozenset(running_job.job for running_job in gpu.running)
    return (gpu.node, gpu.product, gpu.memory, gpu.max_jobs, gpu.max_clients, held)
