"""Partita's ResourceClaims, and the Pods that have them.

Claims that the operator has made for its own Pods have the suffix of `partita.pods.own_claims`. Of
these, only those of jobs are kept: nothing waits for those of probe Pods.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

from partita.models import Allocation
from partita.models.device_class import class_target
from partita.pods.own_claims import is_own_claim
from partita.store.claim_view import ClaimView
from partita.store.index import Index, UserIndex
from partita.store.views import PodView

__all__ = ["Claims"]

Json = dict[str, Any]

_USERS: Final = 32
"""Pods of each kind, bound and not, that are looked at for a claim if no reservation names them. A
claim is for one Pod: with more it is refused, however many there are."""


class Claims:
    """All claims of Partita's device classes, by UID, class, name and Pod.

    Parameters
    ----------
    pods
        All Pods that the operator keeps, by UID.
    partitions
        Names of those that exist.
    """

    def __init__(self, pods: Mapping[str, PodView], partitions: Container[str]) -> None:
        self.by_uid: dict[str, ClaimView] = {}
        self._pods, self._partitions = pods, partitions
        self.index = UserIndex()
        self._of_user = Index()
        """UIDs of claims, by UID of their job, or by their own."""
        self._of_owner = Index()
        """UIDs of claims, by UID of the Pod for which they were made."""
        self._uids: dict[str, str] = {}
        """UIDs of claims, by `namespace/name`."""
        self._users = Index()
        """UIDs of Pods that are on no node, by `namespace/name` of a claim that they name."""
        self._bound_users = Index()
        """Likewise of those on a node."""
        self._controlled = Index()
        """UIDs of Pods, by namespace, kind and name of their controller."""

    def read(self, body: Json) -> ClaimView | None:
        """Read a version of a claim; None if it is not one of Partita's, or that of a probe Pod.

        The job of a claim is read once: owner references can be removed.
        """
        claim, old = ClaimView.parse(body), self.by_uid.get(body["metadata"]["uid"])
        if claim is None or claim.job or not is_own_claim(claim.name):
            return claim
        return replace(claim, job=old.job, job_uid=old.job_uid) if old is not None else None

    def changed(self, uid: str, old: ClaimView | None, new: ClaimView | None) -> set[str]:
        """Replace a claim in the indexes; return the partitions whose numbers have changed."""
        if old is not None:
            self._of_user.discard(old.user, old.uid)
            self._of_owner.discard(old.owner_pod_uid, old.uid)
            if self._uids.get(old.key) == old.uid:
                del self._uids[old.key]
        if new is not None:
            self._of_user.add(new.user, new.uid)
            if new.owner_pod_uid:
                self._of_owner.add(new.owner_pod_uid, new.uid)
            self._uids[new.key] = new.uid
        return set(map(self._partition_of, self.index.changed(uid, old, new)))

    def pod_changed(self, old: PodView | None, new: PodView | None) -> set[str]:
        """Replace a Pod in the indexes; return the UIDs of the claims that it has or had."""
        found = set[str]()
        for pod in (old, new):
            if pod is None:
                continue
            found |= {*self._of_owner.of(pod.uid)}
            if pod.workload.controller:
                change = self._controlled.add if pod is new else self._controlled.discard
                change(f"{pod.namespace}/{pod.workload.controller}", pod.uid)
            for name in pod.claims:
                key = f"{pod.namespace}/{name}"
                users = self._bound_users if pod.node else self._users
                if pod is new:
                    users.add(key, pod.uid)
                else:
                    users.discard(key, pod.uid)
                if key in self._uids:
                    found.add(self._uids[key])
        return found

    def of_user(self, user: str) -> list[ClaimView]:
        """Return the claims of a job's attempts by its UID, or the claim that has the UID."""
        return [self.by_uid[uid] for uid in self._of_user.of(user)]

    def made_for(self, pod: PodView) -> list[ClaimView]:
        """Return the claims made for a Pod from templates."""
        claims = (self.by_uid[uid] for uid in self._of_owner.of(pod.uid))
        return [claim for claim in claims if claim.namespace == pod.namespace]

    def named(self, namespace: str, name: str) -> ClaimView | None:
        """Return the claim of this name, if it is one of Partita's."""
        return self.by_uid.get(self._uids.get(f"{namespace}/{name}", ""))

    def of_partitions(
        self, index: Index, wanted: Callable[[str], bool]
    ) -> Iterator[Collection[str]]:
        """Return the members of the classes in an index that name a wanted partition."""
        for name in list(index.keys()):
            if wanted(self._partition_of(name)):
                yield index.of(name)

    def _partition_of(self, device_class: str) -> str:
        target = class_target(device_class, self._partitions)
        return target.partition if target is not None else ""

    def pods_beside(self, pod: PodView) -> Iterator[tuple[PodView, str]]:
        """Return the Pods of a Pod's controller, once for each of their claims, with its UID."""
        controller = pod.workload.controller
        for uid in self._controlled.of(f"{pod.namespace}/{controller}") if controller else ():
            if (found := self._pods.get(uid)) is not None:
                named = (f"{found.namespace}/{name}" for name in found.claims)
                yield from ((found, self._uids[name]) for name in named if name in self._uids)

    def pods_of(self, uid: str, allocated: Mapping[str, Allocation]) -> list[PodView]:
        """Return the Pods of a claim, sorted by name.

        A claim made for a Pod has only that Pod. The Pod in the ledger counts even if the claim is
        gone or has another owner. A tenant may write any owner reference into its own claims, so a
        Pod of another namespace is never one of them. Of many Pods that name a claim, those for
        which it is allocated or reserved are returned, and some others.

        Parameters
        ----------
        allocated
            Its allocations.
        """
        claim = self.by_uid.get(uid)
        pods = {(a.namespace, a.pod_uid) for a in allocated.values()}
        if claim is not None:
            owner = claim.owner_pod_uid
            waiting, bound = self._users.of(claim.key), self._bound_users.of(claim.key)
            some = chain(claim.reserved_for, islice(waiting, _USERS), islice(bound, _USERS))
            uids = [owner] if owner else some
            pods |= {(claim.namespace, pod) for pod in uids}
        found = [self._pods[pod] for _, pod in pods if pod in self._pods]
        return sorted(
            (pod for pod in found if (pod.namespace, pod.uid) in pods), key=lambda pod: pod.name
        )
