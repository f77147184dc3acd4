"""The data about one claim that is kept in addition to the state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from partita.claims.claim_lifecycle import ClaimPlan, Eviction
from partita.models import EstimatedStart
from partita.pause import Pause
from partita.scheduling.reasons import WaitingReason
from partita.store.views import PodView
from partita.times import Times

__all__ = ["ClaimRecord", "WrittenStatus"]
_SHOWN_POSITIONS = 50
"""Number of positions at the head of a queue for which changed messages are written."""


class WrittenStatus(NamedTuple):
    """What is written about the waiting of a claim."""

    why: WaitingReason
    position: int | None
    """Its position in the queue; None if it has none."""
    expected: EstimatedStart | None
    """When it is expected to start."""
    time: datetime


@dataclass(slots=True)
class ClaimRecord:
    """The data about one claim that is kept in addition to the state."""

    times: Times = Times()
    partition: str = ""
    """Its partition at the last reconciliation."""
    plan: ClaimPlan = field(default_factory=ClaimPlan)
    pod: PodView | None = None
    """The Pod for which it asks for a GPU, as of its last reconciliation."""
    why: WaitingReason | None = None
    """Why it waits."""
    position: int | None = None
    """Its position in the queue."""
    expected: EstimatedStart | None = None
    """When it is expected to start."""
    allocated_since: datetime | None = None
    """Time of the entry in the ledger with whose allocation the claim was seen."""
    avoided: dict[str, Pause] = field(default_factory=dict)
    """When it does not use a node."""
    not_bound: str = ""
    """Why kube-scheduler did not bind its Pod to the node of its last allocation."""
    ending: Eviction | None = None
    """Why its Pod must end, as another component has requested."""
    protected: Pause | None = None
    """When its Pod is no victim of others, because a budget has protected it."""
    evicted: Pause | None = None
    """When its Pod is not evicted again, because that has just been requested."""
    not_grown: str = ""
    """Why the larger slice that it needs is not allocated yet."""
    not_remembered: bool = False
    """Whether the memory with which it ran out could not be added to its history."""
    idle: bool = False
    """Whether its Pod is idle."""
    written: WrittenStatus | None = None
    """What was written last."""

    @property
    def is_outdated(self) -> bool:
        """Whether another reason or position was written than it has."""
        return self.written is None or self.written[:2] != (self.why, self.position)

    @property
    def is_near(self) -> bool:
        """Whether it is near the head of a queue."""
        return self.position is not None and self.position <= _SHOWN_POSITIONS

    def stops_waiting(self) -> None:
        """Forget why it waits and until when, and what was written: its allocation replaces it."""
        self.why = self.position = self.expected = self.written = None

    def avoid(self, node: str, words: str, now: datetime) -> None:
        """Leave out a node for some time, because kube-scheduler did not bind the Pod there."""
        self.avoided[node] = Pause.of(now, self.times.unbound_node)
        self.not_bound = words or "kube-scheduler did not bind its Pod"

    def avoid_rejecting(self, nodes: Mapping[str, tuple[Pause, str]]) -> None:
        """Leave out nodes that have rejected Pods like its own, each with time and reason."""
        for node, (pause, words) in nodes.items():
            self.avoided[node], self.not_bound = pause, words

    def avoided_nodes(self, now: datetime) -> frozenset[str]:
        """Return the nodes that it does not use now."""
        return frozenset(node for node, pause in self.avoided.items() if pause.holds(now))

    def avoided_until(self, now: datetime) -> datetime | None:
        """Return when the first of these nodes is used again; None if none is avoided."""
        return min((p.until for p in self.avoided.values() if p.holds(now)), default=None)

    def says_not_bound(self, now: datetime) -> str:
        """Return why it waits while it avoids all nodes."""
        until = self.avoided_until(now) or now
        return (
            f"its Pod was bound to none of the nodes {', '.join(sorted(self.avoided_nodes(now)))}: "
            f"{self.not_bound}. It is tried again at {until:%H:%M:%S} UTC"
        )

    def without_repeated_eviction(self, plan: ClaimPlan, now: datetime) -> ClaimPlan:
        """Return a plan that evicts its Pod only if that was not just requested."""
        if plan.evict is None or self.evicted is None or not self.evicted.holds(now):
            return plan
        return replace(plan, evict=None, eviction=None, wake=self.evicted.until)

    def show(self, now: datetime) -> WrittenStatus | None:
        """Return what to write about its waiting now, and record it as written; None for no write.

        For a queued claim a message that differs only in numbers, or another position, is written
        only every `Times.refresh`, and only near the head of the queue.
        """
        if self.why is None:
            return None
        new = WrittenStatus(self.why, self.position, self.expected, now)
        old = self.written
        if old is not None and old.why.reason is new.why.reason and old.expected == new.expected:
            age = abs((now - old.time).total_seconds())
            queued, recent = self.position is not None, age < self.times.refresh
            if not self.is_outdated or (queued and (recent or not self.is_near)):
                return None
        self.written = new
        return new
