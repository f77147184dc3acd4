"""How soon a change of a job's status is to be written."""

from partita.models import Phase, SharedGPUJobStatus

__all__ = ["within"]

QUEUED_WITHIN = 0.4
"""Seconds before `Queued` is first written: most jobs start sooner, and then it never is."""
ASSIGNED_WITHIN = 1.0
"""Seconds before `Assigned` is written: most Pods run sooner, and then `Running` is."""
RUNNING_WITHIN = 0.5
"""Seconds before `Running` is written: a program that ends sooner has one write."""
REASON_WITHIN = 0.5
"""Seconds before a changed reason is written; 2 s are promised."""


def within(old: SharedGPUJobStatus, new: SharedGPUJobStatus) -> float:
    """Seconds within which a change is to be written."""
    if any(c.type == "Stalled" and c.status == "True" for c in new.conditions):
        return 0.0  # nothing but a change of YAML can come in between
    if new.phase is Phase.ASSIGNED:
        return ASSIGNED_WITHIN
    before, after = ([a.outcome for a in status.attempts] for status in (old, new))
    if new.phase is Phase.RUNNING and [o for o in before if o] == [o for o in after if o]:
        return RUNNING_WITHIN
    if new.phase is Phase.QUEUED and before == after:
        return QUEUED_WITHIN if old.phase is None else REASON_WITHIN
    return 0.0
