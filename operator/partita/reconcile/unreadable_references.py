"""Which jobs are left as they are because something they rest on could not be read."""

from partita.informer.state import State
from partita.models import SharedGPUJob

__all__ = ["depends_on_unreadable"]


def depends_on_unreadable(job: SharedGPUJob, state: State) -> bool:
    """Tell whether what the job holds may stand in an object that could not be read.

    It is then left as it is: neither ended, nor started once more, nor is anything released.
    """
    uid = job.metadata.uid
    if not state.unknown_of(job.spec.partition):
        return False
    allocated = state.allocated(uid)
    alive = {a.number for a in job.status.attempts if a.outcome is None}
    alive |= {p.attempt for p in state.pods_of(uid) if p.alive}
    if not allocated:
        return bool(alive)
    lacks_one = any(
        name not in state.servers
        for a in job.status.attempts
        if a.outcome is None
        for name in a.servers
    )
    # Its Pod could not be made without the partition's tolerations.
    starts = any(a.attempt not in alive for a in allocated.values())
    return lacks_one or (starts and job.spec.partition not in state.partitions)
