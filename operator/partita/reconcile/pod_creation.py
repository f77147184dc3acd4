"""Whether the Pod of an attempt with an allocation, but without an observed Pod, may be created.

The Pod is created only by the process that made the allocation, and only until a request to create
it may have taken effect. Another process cannot distinguish a Pod that was never created from one
that was created and deleted by force. So if the Pod is missing by then, it is never created: the
attempt ends, and the next one has another number. Thus no attempt ever has two Pods.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum, auto

from partita.models import Allocation

__all__ = ["CREATION_UNKNOWN", "POD_NOT_FOUND", "PodCreation", "PodCreations"]

POD_NOT_FOUND = "PodNotFound"
"""Reason of an attempt that ended because another process may have created its Pod, which is
missing. The next attempt starts at once."""
CREATION_UNKNOWN = "PodCreationUnknown"
"""Reason of an attempt that ended because a request to create its Pod got no clear response, and
the Pod is missing. The next attempt starts after a backoff."""


class PodCreation(Enum):
    """Creation state of the Pod of an allocation."""

    UNKNOWN = auto()
    """A request to create it may have taken effect: it must be read by its name."""
    NOT_CREATED = auto()
    """This process made the allocation, and no request to create the Pod took effect."""
    NOT_FOUND = auto()
    """A request to create it may have taken effect, and no Pod has its name."""


class PodCreations:
    """Creation states of the Pods of allocations in this process, by job UID."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[frozenset[tuple[int, datetime]], PodCreation]] = {}
        """Each state is valid only for the allocations of this attempt and time."""

    def of(self, uid: str, allocated: Iterable[Allocation]) -> PodCreation:
        """Return the creation state of the Pod for a job's allocations."""
        held, found = self._known.get(uid, (frozenset(), PodCreation.UNKNOWN))
        return found if held == _keys(allocated) else PodCreation.UNKNOWN

    def allocating(self, uid: str, attempt: int, since: datetime) -> None:
        """Record that this process is about to allocate for an attempt."""
        self._known[uid] = frozenset({(attempt, since)}), PodCreation.NOT_CREATED

    def requesting(self, uid: str) -> None:
        """Record that a request to create the Pod is about to be sent."""
        self._known[uid] = self._known[uid][0], PodCreation.UNKNOWN

    def had_no_effect(self, uid: str) -> None:
        """Record that this request had no effect."""
        self._known[uid] = self._known[uid][0], PodCreation.NOT_CREATED

    def not_found(self, uid: str, allocated: Iterable[Allocation]) -> None:
        """Record that the Pod for these allocations is missing."""
        self._known[uid] = _keys(allocated), PodCreation.NOT_FOUND

    def forget(self, uid: str) -> None:
        """Remove a job."""
        self._known.pop(uid, None)


def _keys(allocated: Iterable[Allocation]) -> frozenset[tuple[int, datetime]]:
    return frozenset((a.job_attempt, a.since) for a in allocated)
