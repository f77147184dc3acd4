"""When the Pods of allocations that are released are killed, for the ledger."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from partita.models import Allocation
from partita.store.views import PodView

__all__ = ["release_marks"]

_CLOCK_DIFFERENCE: Final = timedelta(seconds=2)
"""A deadline is not written again if it is later than the Pod's by at most this time: the clocks of
operator and API server differ, and the API server stores whole seconds. An assumption."""


def release_marks(
    pods: Iterable[PodView],
    allocated: Mapping[str, Allocation],
    now: datetime,
    deadlines: Mapping[str, datetime] | None = None,
) -> dict[str, Allocation]:
    """Return the marked allocations to write, by GPUServer; empty if all marks are up to date.

    Parameters
    ----------
    pods
        The Pods that have not finished.
    allocated
        Their allocations, by GPUServer.
    deadlines
        When the Pods that the operator is about to delete are killed, by their UID.
    """
    killed = {p.uid: p.deletion_time for p in pods if p.deletion_time is not None and p.node}
    killed |= deadlines or {}
    marks = {}
    for server, allocation in allocated.items():
        deadline, written = killed.get(allocation.pod_uid), allocation.release_deadline
        if deadline is None or (written and written <= deadline + _CLOCK_DIFFERENCE):
            continue
        since = allocation.releasing_since or now
        marks[server] = allocation.model_copy(
            update={"releasing_since": since, "release_deadline": deadline}
        )
    return marks
