"""Jobs that are left unchanged because an object that they depend on could not be read."""

from partita.models import SharedGPUJob
from partita.store.state import State

__all__ = ["depends_on_unreadable"]


def depends_on_unreadable(job: SharedGPUJob, state: State) -> bool:
    """Return whether a job's allocations may be in an object that could not be read.

    Then the job is left unchanged: it is neither ended nor started again, and nothing is released.
    """
    uid = job.metadata.uid
    if not state.unknown_of(job.spec.partition):
        return False
    allocated = state.allocated(uid)
    alive = {a.number for a in job.status.attempts if a.outcome is None}
    alive |= {p.attempt for p in state.pods_of(uid) if p.alive}
    if not allocated:
        return bool(alive)
    return any(
        name not in state.servers
        for a in job.status.attempts
        if a.outcome is None
        for name in a.servers
    )
