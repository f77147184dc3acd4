"""Assigns Pods to their owners, by properties that the Pod's tenant cannot change.

A Pod of a job is in the job's namespace, has the name of an attempt and the job as its controller.
If a UID was recorded for the attempt, the Pod has this UID. Owner references can be removed, by
hand or by `kubectl delete --cascade=orphan`. A Pod without them belongs to the job that has an
allocation for the attempt of this name, if the Pod names a claim of the operator: the admission
policy allows only the operator to name one, and these names never change.
"""

from collections.abc import Iterable

from partita.models import Allocation, SharedGPUJob
from partita.pods.job_pod import pod_name
from partita.store.index import Index
from partita.store.views import PodView

__all__ = ["OwnedPods", "is_of_job"]


class OwnedPods:
    """The Pods that claim to be Partita's, by UID and by owner."""

    def __init__(self) -> None:
        self.by_uid: dict[str, PodView] = {}
        self._of = Index()
        """UIDs of Pods, by UID of their controller."""
        self._orphans: dict[tuple[str, str], str] = {}
        """UIDs of Pods without a controller, by namespace and name."""
        self.removed: dict[str, list[PodView]] = {}
        """Deleted Pods whose end is not in a job's status yet, by job UID."""

    def index(self, pod: PodView) -> None:
        """Add a Pod that is in `by_uid` to the indexes."""
        if pod.owner_uid:
            self._of.add(pod.owner_uid, pod.uid)
        else:
            self._orphans[pod.namespace, pod.name] = pod.uid

    def drop(self, pod: PodView) -> None:
        """Remove a Pod that is no longer in `by_uid` from the indexes."""
        if not pod.owner_uid:
            if self._orphans.get((pod.namespace, pod.name)) == pod.uid:
                del self._orphans[pod.namespace, pod.name]
            return
        self._of.discard(pod.owner_uid, pod.uid)

    def of(self, owner: str) -> list[PodView]:
        """Return the Pods whose controller is an object."""
        return [self.by_uid[uid] for uid in self._of.of(owner)]

    def named(self, owner: str, namespace: str, name: str) -> PodView | None:
        """Return the Pod of this name whose controller is an object."""
        place = namespace, name
        return next((p for p in self.of(owner) if (p.namespace, p.name) == place), None)

    def orphans_of(self, allocated: Iterable[Allocation]) -> list[PodView]:
        """Return the Pods without a controller that have the name of an allocated attempt."""
        names = _attempt_names(allocated)
        return [self.by_uid[self._orphans[name]] for name in names if name in self._orphans]


def is_of_job(
    pod: PodView, job: SharedGPUJob | None, allocated: Iterable[Allocation], *, uid: str
) -> bool:
    """Return whether a Pod belongs to a job.

    Parameters
    ----------
    job
        The job; None if it is deleted: then its allocations contain its namespace and name.
    uid
        Its UID.
    """
    if not pod.owner_uid:
        names = _attempt_names(allocated)
        if (pod.namespace, pod.name) not in names:
            return False
    elif pod.owner_uid != uid:
        return False
    if job is not None:
        recorded = {a.number: a.pod_uid for a in job.status.attempts}.get(pod.attempt)
        meta = job.metadata
        mine = (pod.namespace, pod.owner) == (meta.namespace, meta.name)
        return mine and recorded in {None, "", pod.uid}
    return any((pod.namespace, pod.owner) == (a.namespace, a.name) for a in allocated)


def _attempt_names(allocated: Iterable[Allocation]) -> set[tuple[str, str]]:
    """Return namespace and name of the Pods of allocated attempts of jobs."""
    return {(a.namespace, pod_name(a.name, a.attempt)) for a in allocated if a.attempt is not None}
