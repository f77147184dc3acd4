"""How soon a change of a job's status must be written."""

from partita.models import Phase, SharedGPUJobStatus
from partita.times import Times

__all__ = ["within"]


def within(old: SharedGPUJobStatus, new: SharedGPUJobStatus, times: Times) -> float:
    """Return the seconds within which a change must be written."""
    if any(c.type == "Stalled" and c.status == "True" for c in new.conditions):
        return 0.0  # only a change of YAML can follow, so waiting saves no write
    if new.phase is Phase.ASSIGNED:
        return times.assigned_within
    before, after = ([a.outcome for a in status.attempts] for status in (old, new))
    if new.phase is Phase.RUNNING and [o for o in before if o] == [o for o in after if o]:
        return times.running_within
    if new.phase is Phase.QUEUED and before == after:
        return times.queued_within if old.phase is None else times.reason_within
    return 0.0
