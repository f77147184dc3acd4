"""What is kept of one job beside what the state has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from partita.models import Phase, SharedGPUJobStatus
from partita.reconcile.attempts import Ending
from partita.reconcile.job_status import same_status
from partita.reconcile.lifecycle import Plan
from partita.reconcile.reasons import Reason, Why

__all__ = ["REFRESH", "JobRecord"]

REFRESH = timedelta(seconds=15)
"""Between two writes that only renew numbers in a message or a place in the queue."""
_SHOWN_POSITIONS = 50
"""Places at the head of a queue that are kept up to date in the statuses."""
_NUMBERS = {"message", "queue_position", "bypasses", "conditions"}
"""Fields that change often while a job waits."""

_TOLD_BY_CYCLES = frozenset(Reason) - {
    Reason.SCHEDULING,
    Reason.BACK_OFF,
    Reason.ENDING,
    Reason.SUSPENDED,
    Reason.POD_FORBIDDEN,
    Reason.WEBHOOK_FAILED,
}
"""Reasons for which a job waits in the queue, as long as no cycle says otherwise."""


@dataclass(slots=True)
class JobRecord:
    """What is kept of one job beside what the state has."""

    partition: str = ""
    """Its partition when it was reconciled last."""
    plan: Plan | None = None
    why: Why | None = None
    """Why it waits."""
    position: int | None = None
    bypasses: int = 0
    explained: tuple[Reason, datetime] | None = None
    """The reason that a cycle gave last, and when its status was last renewed for it; None where
    it waits for another cause."""
    generation: int = 0
    """Generation of its partition when a cycle explained why it waits."""
    shown: tuple[SharedGPUJobStatus, datetime] | None = None
    """The status that was handed on to be written, and when."""
    ending: Ending | None = None
    """Why its attempt is to be ended."""
    not_created: str = ""
    """Why the Pod of its allocation could not be created so far."""
    first_attempt: int = 1
    """Attempts below it have the names of Pods of another owner."""
    ended_since: Mapping[int, datetime] = field(default_factory=dict)
    """When its Pods that are over were first seen to be, by attempt."""
    beside: tuple[str, ...] = ()
    """Jobs on the same GPUs when it was placed."""
    status_refused: bool = False
    """The API server never takes its status: nothing waits for that."""

    def restore(self, status: SharedGPUJobStatus, generation: int, now: datetime) -> None:
        """Begin with the reason in the status, until a cycle finds another.

        Else an operator that takes over a long queue would write all its statuses twice.
        """
        if status.phase is Phase.QUEUED and status.reason in _TOLD_BY_CYCLES:
            self.why = Why(Reason(status.reason), status.message)
            self.position, self.bypasses = status.queue_position, status.bypasses or 0
            self.explained, self.generation = (self.why.reason, now), generation
        else:
            self.why = Why(Reason.SCHEDULING, "it has just been queued")

    def is_news(self, reason: Reason, generation: int, now: datetime) -> bool:
        """Tell whether the reason that a cycle gives is to be shown, and note that it is.

        Only at the head of a long queue are mere numbers renewed, but for those that somebody
        changed in the partition.

        Parameters
        ----------
        generation
            That of the partition for which the cycle decided.
        """
        if self.explained is not None and self.generation == generation:
            before, at = self.explained
            near = self.position is not None and self.position <= _SHOWN_POSITIONS
            if before is reason and not (near and now - at >= REFRESH):
                return False
        elif self.explained is not None:
            self.shown = None  # what was shown just now speaks of the partition as it was
        self.explained, self.generation = (reason, now), generation
        return True

    def has_moved(self, current: SharedGPUJobStatus) -> bool:
        """Tell whether its position, at the head of the queue, is another than its status has."""
        shown = self.shown[0] if self.shown else current
        near = self.position is not None and self.position <= _SHOWN_POSITIONS
        return near and self.position != shown.queue_position

    def show(
        self, status: SharedGPUJobStatus, current: SharedGPUJobStatus, now: datetime
    ) -> float | None:
        """Return the seconds until a status may be written, and note it where that is now.

        A status that differs only in numbers is written only every `REFRESH`. Of these numbers
        only a position is worth a write of its own: else the positions would have gaps for ever.

        Returns
        -------
        float or None
            None where it is not to be written.
        """
        if same_status(status, current):
            if self.shown is None:
                return None
            if same_status(status, self.shown[0]):
                self.shown = current, self.shown[1]  # once in memory, not twice
                return None
            self.shown = None  # it replaces what is perhaps not written yet
            return 0.0
        old, since = self.shown or (current, None)
        fresh = self.explained is not None and since is not None and now - since < REFRESH
        if fresh and status.phase is Phase.QUEUED and same_status(status, old, but=_NUMBERS):
            left = REFRESH - (now - since) if since else REFRESH
            return left.total_seconds() if self.has_moved(current) else None
        self.shown = status, now
        return 0.0
