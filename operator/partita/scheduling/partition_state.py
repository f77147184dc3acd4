"""State of a partition that is kept between its cycles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from partita.pause import Pause
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.preemption import Victims
from partita.scheduling.reservations import Aging
from partita_policies.types import Job

__all__ = ["PartitionState", "Reservation"]


class Reservation(NamedTuple):
    """GPUs that were chosen for a job whose Pod is being created."""

    job: Job
    gpus: tuple[str, ...]
    pause: Pause
    """When others may not have them."""
    policy: str
    """Who chose them."""


@dataclass(slots=True)
class PartitionState:
    """State of a partition that is kept between its cycles."""

    runner: PolicyRunner
    aging: Aging = field(default_factory=Aging)
    nominated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """GPUs held for each job for which other jobs are preempted, by UID."""
    reserved: dict[str, Reservation] = field(default_factory=dict)
    """GPUs of jobs whose Pods are being created, by UID."""
    victims: Victims = field(default_factory=Victims)
    holds_restored: bool = False
    """Whether the first cycle has held what an earlier operator had held for preemptors."""
    past_shares: Mapping[str, float] = field(default_factory=dict)
    """The mean dominant share that each namespace had lately."""
    searched: set[tuple[object, ...]] = field(default_factory=set)
    """Shapes of jobs for which the search for victims in progress has found none."""

    def expire_reservations(self, now: datetime) -> list[Reservation]:
        """Remove the reservations whose time is over, and return them."""
        expired = [kept for kept in self.reserved.values() if not kept.pause.holds(now)]
        for kept in expired:
            del self.reserved[kept.job.id]
        return expired

    def preemptors_first(self, order: Iterable[Job]) -> list[Job]:
        """Sort waiting jobs by priority, then by the time at which their victims were chosen.

        So the successor of an idle service, which comes first in the queue, does not take its
        place back from the job for which the service was ended.

        Parameters
        ----------
        order
            The waiting jobs in queue order, in which those without victims stay.
        """
        turn = {job_id: n for n, job_id in enumerate(self.nominated)}
        return sorted(order, key=lambda job: (-job.priority, turn.get(job.id, len(turn))))
