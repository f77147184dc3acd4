"""Result of a scheduling cycle."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from partita.scheduling.allocated_claim import Growth
from partita.scheduling.policy_runner import Answer
from partita.scheduling.preemption import Preemption
from partita.scheduling.reasons import WaitingReason, stalled
from partita_policies.types import GPU, Job, Placement, Snapshot

__all__ = ["CycleResult", "Explained", "placements_of"]


class Explained(NamedTuple):
    """Why a job or a claim waits after a cycle."""

    why: WaitingReason
    position: int | None
    """Its position in the queue; None if it can never start."""
    bypasses: int
    """Number of cycles that bypassed it."""
    generation: int
    """Generation of the partition in this cycle."""
    time: datetime


@dataclass(slots=True)
class CycleResult:
    """Result of a scheduling cycle."""

    placed: list[tuple[Job, tuple[str, ...]]] = field(default_factory=list)
    allocated: dict[str, GPU] = field(default_factory=dict)
    """The GPUs on which the decision is based, by name."""
    grown: list[Growth] = field(default_factory=list)
    """Allocated claims that get more memory."""
    moves: list[Growth] = field(default_factory=list)
    """Allocated claims that can get more memory on another GPU only."""
    not_grown: dict[str, str] = field(default_factory=dict)
    """Why each other claim gets no more memory now, by UID."""
    preemptions: list[Preemption] = field(default_factory=list)
    """Running jobs to end, and the jobs for which they are ended."""
    order: list[Job] = field(default_factory=list)
    """The jobs in queue order, including those that were placed."""
    why: dict[str, WaitingReason] = field(default_factory=dict)
    """Why each job that was not placed waits."""
    short: frozenset[str] = frozenset()
    """Nodes with too little free CPU, memory or ephemeral storage for some of the waiting jobs."""
    answer: Answer | None = None
    chosen_before: dict[str, str] = field(default_factory=dict)
    """Who chose the GPUs of placed jobs in an earlier cycle, by UID: their Pods were late."""
    snapshot: Snapshot | None = None
    """What the policy decided on."""
    left: Snapshot | None = None
    """All GPUs, and what waits for room on them in queue order, after the cycle."""
    again: float | None = None
    """Seconds until the next cycle if nothing changes; None if no such cycle is needed."""

    def chosen_by(self, job_id: str) -> str:
        """Return the policy that chose the GPUs of a placed job; `aging` if its turn had come."""
        now = self.answer.policy if self.answer else "aging"
        return self.chosen_before.get(job_id, now)

    def explained(self, generation: int, now: datetime) -> Iterator[tuple[str, Explained]]:
        """Yield why each job waits, by UID, in queue order."""
        placed = {job.id for job, _ in self.placed}
        waiting = {job.id: job for job in self.order if job.id not in placed}
        position = 0
        for uid in [*waiting, *(self.why.keys() - waiting.keys() - placed)]:
            why, job = self.why[uid], waiting.get(uid)
            counts = job is not None and not stalled(why.reason)
            position += counts
            bypasses = job.bypasses if job else 0
            yield uid, Explained(why, position if counts else None, bypasses, generation, now)


def placements_of(result: CycleResult) -> list[Placement]:
    """Return the placements made for the jobs in the snapshot, in the form of a policy's answer."""
    asked = {job.id for job in result.snapshot.jobs} if result.snapshot else set()
    return [Placement(job.id, gpus) for job, gpus in result.placed if job.id in asked]
