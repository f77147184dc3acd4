"""Result of a scheduling cycle."""

from dataclasses import dataclass, field

from partita.scheduling.allocated_claim import Growth
from partita.scheduling.policy_runner import Answer
from partita.scheduling.preemption import Preemption
from partita.scheduling.reasons import WaitingReason
from partita_policies.types import GPU, Job, Placement, Snapshot

__all__ = ["CycleResult", "placements_of"]


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
    again: float | None = None
    """Seconds until the next cycle if nothing changes; None if no such cycle is needed."""

    def chosen_by(self, job_id: str) -> str:
        """Return the policy that chose the GPUs of a placed job; `aging` if its turn had come."""
        now = self.answer.policy if self.answer else "aging"
        return self.chosen_before.get(job_id, now)


def placements_of(result: CycleResult) -> list[Placement]:
    """Return the placements made for the jobs in the snapshot, in the form of a policy's answer."""
    asked = {job.id for job in result.snapshot.jobs} if result.snapshot else set()
    return [Placement(job.id, gpus) for job, gpus in result.placed if job.id in asked]
