"""Indexes that keep no keys without members, because tenants can invent partition names."""

from collections.abc import Collection, KeysView

from partita.models import SharedGPUJob
from partita.store.claim_view import ClaimView

__all__ = ["Index", "UserIndex"]


class Index:
    """Sets of names or UIDs by key."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}

    def of(self, key: str) -> Collection[str]:
        """Return the members of a key, unordered."""
        return self._members.get(key, ())

    def keys(self) -> KeysView[str]:
        """Return the keys that have members."""
        return self._members.keys()

    def add(self, key: str, member: str) -> None:
        """Add a member, if it is missing."""
        self._members.setdefault(key, set()).add(member)

    def discard(self, key: str, member: str) -> None:
        """Remove a member, if it exists."""
        members = self._members.get(key, set())
        members.discard(member)
        if not members:
            self._members.pop(key, None)


class UserIndex:
    """UIDs of jobs by partition, or of claims by device class, without the claims of jobs."""

    def __init__(self) -> None:
        self.all = Index()
        self.suspended = Index()
        """Jobs whose status says so."""
        self.unfinished = Index()
        """Jobs that have neither finished nor are to be suspended; claims that are told why they
        wait."""

    def changed(
        self, uid: str, old: SharedGPUJob | ClaimView | None, new: SharedGPUJob | ClaimView | None
    ) -> set[str]:
        """Replace a job or claim by another version; return the keys whose numbers have changed."""
        before, after = self._places(old), self._places(new)
        for index, key in before - after:
            index.discard(key, uid)
        for index, key in after - before:
            index.add(key, uid)
        return {key for _, key in before ^ after}

    def _places(self, one: SharedGPUJob | ClaimView | None) -> set[tuple[Index, str]]:
        key, suspended, unfinished = one.indexed if one is not None else (None, False, False)
        indexes = {self.all: True, self.suspended: suspended, self.unfinished: unfinished}
        return {(index, key) for index, is_in in indexes.items() if is_in and key is not None}
