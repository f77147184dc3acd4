"""The ResourceClaims that the operator has created for its own Pods (`partita.pods.own_claims`).

They never wait: the operator has decided before it creates them. So they are kept apart from the
claims of other Pods (`partita.store.claims`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any, Self

from partita.store.index import Index
from partita.store.object_versions import apply_view
from partita.store.tombstones import Tombstones

__all__ = ["OwnClaim", "OwnClaims"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """The fields of such a claim that are kept in memory."""

    uid: str
    name: str
    namespace: str
    version: int
    owner_uid: str
    """UID of the job, or of the probe Pod; empty if it has lost its owner."""
    attempt: int
    """The attempt of the job, from the name of the claim; 0 for a probe Pod."""
    allocated: bool
    deleting: bool

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read a ResourceClaim."""
        meta = body["metadata"]
        owners = meta.get("ownerReferences") or ()
        owner: Json = next((o for o in owners if o.get("controller")), {})
        number = meta["name"].removeprefix(f"{owner.get('name')}-").partition(".")[0]
        of_job = owner.get("kind") == "SharedGPUJob" and number.isdecimal()
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            namespace=intern(meta["namespace"]),
            version=int(meta["resourceVersion"]),
            owner_uid=owner.get("uid", ""),
            attempt=int(number) if of_job else 0,
            allocated=bool((body.get("status") or {}).get("allocation")),
            deleting=bool(meta.get("deletionTimestamp")),
        )


class OwnClaims:
    """All such claims, by UID, name and owner."""

    def __init__(self) -> None:
        self.by_uid: dict[str, OwnClaim] = {}
        self._uids: dict[str, str] = {}
        """UIDs by `namespace/name`."""
        self._of_owner = Index()

    def of(self, owner: str) -> Iterator[OwnClaim]:
        """Return the claims of a job or a probe Pod, by its UID."""
        return (self.by_uid[uid] for uid in self._of_owner.of(owner))

    def named(self, namespace: str, name: str) -> OwnClaim | None:
        """Return the claim of this name."""
        return self.by_uid.get(self._uids.get(f"{namespace}/{name}", ""))

    def all(self) -> Iterable[OwnClaim]:
        """Return all claims."""
        return self.by_uid.values()

    def apply(self, body: Json, *, deleted: bool, gone: Tombstones) -> str:
        """Apply a ResourceClaim; return the UID of its owner, or empty if nothing has changed."""
        uid = body["metadata"]["uid"]
        old = self.by_uid.get(uid)
        view = old if deleted else OwnClaim.parse(body)
        if view is None:
            return ""
        apply_view(self.by_uid, uid, view, deleted=deleted, gone=gone)
        new = self.by_uid.get(uid)
        if new is old:
            return ""
        if old is not None:
            self._of_owner.discard(old.owner_uid, uid)
            if self._uids.get(old.key) == uid:
                del self._uids[old.key]
        if new is not None:
            self._of_owner.add(new.owner_uid, uid)
            self._uids[new.key] = uid
        return view.owner_uid
