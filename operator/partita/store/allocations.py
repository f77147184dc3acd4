"""Where claims have allocations: an index of the ledgers."""

from collections.abc import Collection, KeysView, Mapping

from partita.models import Allocation, GPUServer
from partita.store.index import Index

__all__ = ["Allocations", "user_of", "users_of"]


class Allocations:
    """The allocations of all claims, by claim, by user and by Pod.

    Parameters
    ----------
    servers
        All GPUServers, by name.
    """

    def __init__(self, servers: Mapping[str, GPUServer]) -> None:
        self._servers = servers
        self._of_claim = Index()
        """GPUServers, by UID of a claim."""
        self._of_user = Index()
        """UIDs of claims, by UID of who uses them (`user_of`)."""
        self._of_pod = Index()
        """UIDs of claims, by UID of the Pod for which they are allocated."""
        self.of_pod = self._of_pod.of

    def of(self, uid: str) -> dict[str, Allocation]:
        """Return the allocations of a claim, or of a job's attempt, by GPUServer."""
        found: dict[str, Allocation] = {}
        for claim in self.holders(uid):
            for name, entry in self._entries(claim).items():
                known = found.get(name)
                if uid in {claim, user_of(claim, entry)} and (
                    known is None or known.attempt < entry.attempt
                ):
                    found[name] = entry
        return dict(sorted(found.items()))

    def has(self, uid: str) -> bool:
        """Return whether a claim, or a job's attempt, has allocations."""
        return bool(self._of_claim.of(uid) or self._of_user.of(uid))

    def holders(self, uid: str) -> Collection[str]:
        """Return the UIDs under which the ledgers have a claim, or the attempts of a job."""
        return self._of_user.of(uid) or (uid,)

    def places(self, uid: str) -> list[tuple[str, str]]:
        """Return the GPUServer and the claim of each allocation of a claim, or of a job."""
        return [(name, claim) for claim in self.holders(uid) for name in self._of_claim.of(claim)]

    def holder(self, uid: str) -> str:
        """Return the UID under which the ledgers have a claim, or the last attempt of a job."""
        holders = self.holders(uid)
        return next(iter(holders)) if len(holders) == 1 else max(holders, key=self._attempt)

    def claims(self) -> KeysView[str]:
        """Return the UIDs of all claims with allocations, including deleted claims."""
        return self._of_claim.keys()

    def changed(self, name: str, old: GPUServer | None, new: GPUServer | None) -> bool:
        """Replace a GPUServer by another version of it; return whether allocations are gone."""
        before, after = (
            {(uid, user_of(uid, e), e.pod_uid) for uid, e in server.status.allocations.items()}
            if server is not None
            else set[tuple[str, str, str]]()
            for server in (old, new)
        )
        for claim, user, pod in before - after:
            self._of_claim.discard(claim, name)
            others = self._entries(claim).values()
            if all(user_of(claim, entry) != user for entry in others):
                self._of_user.discard(user, claim)
            if all(entry.pod_uid != pod for entry in others):
                self._of_pod.discard(pod, claim)
        for claim, user, pod in after - before:
            self._of_claim.add(claim, name)
            self._of_user.add(user, claim)
            self._of_pod.add(pod, claim)
        return bool(before - after)

    def _entries(self, claim: str) -> dict[str, Allocation]:
        names = self._of_claim.of(claim)
        return {name: self._servers[name].status.allocations[claim] for name in names}

    def _attempt(self, claim: str) -> int:
        return max((entry.attempt for entry in self._entries(claim).values()), default=0)


def user_of(claim: str, entry: Allocation) -> str:
    """Return the UID of the job for an attempt of which a claim is allocated, or else its own."""
    return entry.job_uid or claim


def users_of(allocations: Mapping[str, Allocation]) -> set[str]:
    """Return the UIDs of all users of a ledger."""
    return {user_of(uid, entry) for uid, entry in allocations.items()}
