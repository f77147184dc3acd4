"""The data about one job that is kept in addition to the state."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from partita.jobs.attempts import Ending, JobFindings
from partita.jobs.job_status import same_status
from partita.jobs.lifecycle import Plan
from partita.models import EstimatedStart, Phase, SharedGPUJobStatus
from partita.scheduling.reasons import Reason, WaitingReason

__all__ = ["JobRecord"]

_POSITIONS = 10
"""Numbers in the statuses of the first jobs of a queue are updated every `Times.refresh`. For the
next as many it is twice this time, and so on: in a queue that moves fast, a job starts before its
position is written again."""
_SHOWN_POSITIONS = 50
"""Number of positions at the head of a queue that are kept up to date in the statuses."""
_NUMBERS = {"message", "queue_position", "bypasses", "conditions"}
"""Fields that change often while a job waits."""

_FOUND_BY_CYCLES = frozenset(Reason) - {
    Reason.SCHEDULING,
    Reason.BACK_OFF,
    Reason.ENDING,
    Reason.SUSPENDED,
    Reason.POD_FORBIDDEN,
    Reason.WEBHOOK_FAILED,
}
"""Reasons that remain valid after a restart until a cycle finds another."""


@dataclass(slots=True)
class JobRecord(JobFindings):
    """The data about one job that is kept in addition to the state."""

    partition: str = ""
    """Its partition at the last reconciliation."""
    plan: Plan | None = None
    why: WaitingReason | None = None
    """Why it waits."""
    position: int | None = None
    expected: EstimatedStart | None = None
    """When it is expected to start."""
    bypasses: int = 0
    explained: tuple[Reason, datetime] | None = None
    """The reason from the last cycle, and when the status was last updated with it; None if the job
    waits for another cause."""
    generation: int = 0
    """Generation of its partition in the cycle that set `explained`."""
    written: tuple[SharedGPUJobStatus, datetime] | None = None
    """The last status that was passed on for writing, and when."""
    ending: Ending | None = None
    """Why its attempt must be ended."""

    def restore(self, status: SharedGPUJobStatus, generation: int, now: datetime) -> None:
        """Use the reason in the status until a cycle finds another.

        Otherwise an operator that takes over a long queue would write all statuses twice.
        """
        self.expected = status.estimated_start
        if status.phase is Phase.QUEUED and status.reason in _FOUND_BY_CYCLES:
            self.why = WaitingReason(Reason(status.reason), status.message)
            self.position, self.bypasses = status.queue_position, status.bypasses or 0
            self.explained, self.generation = (self.why.reason, now), generation
        else:
            self.why = WaitingReason(Reason.SCHEDULING, "it has just been queued")

    def is_news(self, reason: Reason, generation: int, now: datetime) -> bool:
        """Return whether the reason from a cycle needs a status update, and record it if so.

        Changed numbers alone are updated only at the head of a long queue, or after a change of the
        partition's spec.

        Parameters
        ----------
        generation
            Generation of the partition in this cycle.
        """
        if self.explained is not None and self.generation == generation:
            before, at = self.explained
            near = self.position is not None and self.position <= _SHOWN_POSITIONS
            if before is reason and not (near and abs(now - at) >= self._refresh()):
                return False
        elif self.explained is not None:
            self.written = None  # the last status refers to the previous spec of the partition
        self.explained, self.generation = (reason, now), generation
        return True

    def refresh_in(self, current: SharedGPUJobStatus, now: datetime) -> float | None:
        """Return the seconds until its position may be written again.

        Returns
        -------
        float or None
            None if its position is as in its status, or far from the head of the queue.
        """
        if self.position is None or self.position > _SHOWN_POSITIONS:
            return None
        written, since = self.written or (current, None)
        if self.position == written.queue_position:
            return None
        # After the clock was set back it may be at once.
        return max(0.0, (self._refresh() - abs(now - since)).total_seconds()) if since else 0.0

    def show(
        self, status: SharedGPUJobStatus, current: SharedGPUJobStatus, now: datetime
    ) -> float | None:
        """Return the seconds until a status may be written, and record the status if that is now.

        A status that differs only in numbers is written only every `Times.refresh`. Of these
        numbers only a changed position causes a write: otherwise the positions would have permanent
        gaps.

        Returns
        -------
        float or None
            None if it must not be written.
        """
        if same_status(status, current):
            if self.written is None:
                return None
            if same_status(status, self.written[0]):
                self.written = current, self.written[1]  # shares one object in memory
                return None
            self.written = None  # it replaces a status that may not be written yet
            return 0.0
        old, since = self.written or (current, None)
        fresh = self.explained and since and abs(now - since) < self._refresh()
        if fresh and status.phase is Phase.QUEUED and same_status(status, old, but=_NUMBERS):
            return self.refresh_in(current, now)
        self.written = status, now
        return 0.0

    def _refresh(self) -> timedelta:
        """Return the time between two writes that only update its numbers."""
        return timedelta(seconds=self.times.refresh) * (1 + (self.position or 0) // _POSITIONS)
