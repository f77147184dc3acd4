"""An index that keeps no keys without members, because tenants can invent partition names."""

from collections.abc import Collection, KeysView

__all__ = ["Index"]


class Index:
    """Sets of names or UIDs by key."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._members)

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
