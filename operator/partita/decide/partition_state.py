"""State of a partition that is kept between its cycles."""

from dataclasses import dataclass, field

from partita.decide.policy_runner import PolicyRunner
from partita.decide.preemption import Victims
from partita.decide.reservations import Aging

__all__ = ["PartitionState"]


@dataclass(slots=True)
class PartitionState:
    """State of a partition that is kept between its cycles."""

    runner: PolicyRunner
    aging: Aging = field(default_factory=Aging)
    nominated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """GPUs held for each job for which other jobs are preempted, by UID."""
    victims: Victims = field(default_factory=Victims)
    holds_restored: bool = False
    """Whether the first cycle has held what an earlier operator had held for preemptors."""
    searched: set[tuple[object, ...]] = field(default_factory=set)
    """Shapes of jobs for which the search for victims in progress has found none."""
