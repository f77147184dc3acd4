"""Assigns Pods to their owners, by properties that the Pod's tenant cannot change.

A Pod of a job has an allocation of the job in the ledger. Before that, it is in the job's
namespace, has the name of an attempt and the job as its controller, and if a UID was recorded for
the attempt, the Pod has this UID. Owner references can be removed later, by hand or by
`kubectl delete --cascade=orphan`.
"""

from collections.abc import Iterable

from partita.models import Allocation, SharedGPUJob
from partita.store.index import Index
from partita.store.views import PodView

__all__ = ["OwnedPods", "is_of_job"]


class OwnedPods:
    """The Pods that claim to be Partita's, by UID and by owner."""

    def __init__(self) -> None:
        self.by_uid: dict[str, PodView] = {}
        self._of = Index()
        """UIDs of Pods, by UID of their controller."""
        self.removed: dict[str, list[PodView]] = {}
        """Deleted Pods whose end is not in a job's status yet, by job UID."""

    def index(self, pod: PodView) -> None:
        """Add a Pod that is in `by_uid` to the index."""
        self._of.add(pod.owner_uid, pod.uid)

    def drop(self, pod: PodView) -> None:
        """Remove a Pod that is no longer in `by_uid` from the index."""
        self._of.discard(pod.owner_uid, pod.uid)

    def of(self, owner: str) -> list[PodView]:
        """Return the Pods whose controller is an object."""
        return [self.by_uid[uid] for uid in self._of.of(owner)]

    def named(self, owner: str, namespace: str, name: str) -> PodView | None:
        """Return the Pod of this name whose controller is an object."""
        place = namespace, name
        return next((p for p in self.of(owner) if (p.namespace, p.name) == place), None)


def is_of_job(
    pod: PodView, job: SharedGPUJob | None, allocated: Iterable[Allocation], *, uid: str
) -> bool:
    """Return whether a Pod belongs to a job.

    Parameters
    ----------
    job
        The job; None if it is deleted.
    allocated
        Its allocations.
    uid
        Its UID.
    """
    if any((pod.namespace, pod.uid) == (a.namespace, a.pod_uid) for a in allocated):
        return True
    if job is None or pod.owner_uid != uid:
        return False
    recorded = {a.number: a.pod_uid for a in job.status.attempts}.get(pod.attempt)
    mine = (pod.namespace, pod.owner) == (job.metadata.namespace, job.metadata.name)
    return mine and recorded in {None, "", pod.uid}
