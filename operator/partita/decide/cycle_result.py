"""What a scheduling cycle decides."""

from dataclasses import dataclass, field

from partita.decide.policy_runner import Answer
from partita.decide.preemption import Preemption
from partita.reconcile.reasons import Why
from partita_policies.types import GPU, Job, Placement, Snapshot

__all__ = ["CycleResult", "placements_of"]


@dataclass(slots=True)
class CycleResult:
    """What a cycle decided."""

    placed: list[tuple[Job, tuple[str, ...]]] = field(default_factory=list)
    allocated: dict[str, GPU] = field(default_factory=dict)
    """The GPUs as they were decided on, by name."""
    preemptions: list[Preemption] = field(default_factory=list)
    """Who is to be ended, and for whom."""
    order: list[Job] = field(default_factory=list)
    """The queue in its order, with those that were placed."""
    why: dict[str, Why] = field(default_factory=dict)
    """Why each of the others waits."""
    short: frozenset[str] = frozenset()
    """Nodes of whose own resources too little is free for some of them."""
    answer: Answer | None = None
    snapshot: Snapshot | None = None
    again: float | None = None
    """Seconds after which to decide anew though nothing happens; None for not at all."""


def placements_of(result: CycleResult) -> list[Placement]:
    """Return what was placed of what the policy was asked about, as it would have said it."""
    asked = {job.id for job in result.snapshot.jobs} if result.snapshot else set()
    return [Placement(job.id, gpus) for job, gpus in result.placed if job.id in asked]
