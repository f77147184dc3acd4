"""How soon a change of a job's status must be written."""

from partita.models import Phase, SharedGPUJobStatus

__all__ = ["within"]

QUEUED_WITHIN = 0.4
"""Seconds until `Queued` is first written. Most jobs start sooner, and then it is never written."""
ASSIGNED_WITHIN = 1.0
"""Seconds until `Assigned` is written. Most Pods run sooner, and then `Running` is written."""
RUNNING_WITHIN = 0.5
"""Seconds until `Running` is written. A program that ends sooner needs one write only."""
REASON_WITHIN = 0.5
"""Seconds until a changed reason is written; 2 s are guaranteed."""


def within(old: SharedGPUJobStatus, new: SharedGPUJobStatus) -> float:
    """Return the seconds within which a change must be written."""
    if any(c.type == "Stalled" and c.status == "True" for c in new.conditions):
        return 0.0  # only a change of YAML can follow, so waiting saves no write
    if new.phase is Phase.ASSIGNED:
        return ASSIGNED_WITHIN
    before, after = ([a.outcome for a in status.attempts] for status in (old, new))
    if new.phase is Phase.RUNNING and [o for o in before if o] == [o for o in after if o]:
        return RUNNING_WITHIN
    if new.phase is Phase.QUEUED and before == after:
        return QUEUED_WITHIN if old.phase is None else REASON_WITHIN
    return 0.0
