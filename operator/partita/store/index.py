"""Indexes that keep no keys without members, because tenants can invent partition names."""

from collections.abc import Collection, KeysView

from partita.models import Phase, SharedGPUJob

__all__ = ["Index", "JobIndex"]


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


class JobIndex:
    """UIDs of jobs, by partition."""

    def __init__(self) -> None:
        self.all = Index()
        self.suspended = Index()
        """Those whose status says so."""
        self.unfinished = Index()
        """Those that have neither finished nor are to be suspended."""

    def changed(self, uid: str, old: SharedGPUJob | None, new: SharedGPUJob | None) -> set[str]:
        """Replace a job by another version; return the partitions whose numbers have changed."""
        before, after = self._places(old), self._places(new)
        for index, partition in before - after:
            index.discard(partition, uid)
        for index, partition in after - before:
            index.add(partition, uid)
        return {partition for _, partition in before ^ after}

    def _places(self, job: SharedGPUJob | None) -> set[tuple[Index, str]]:
        if job is None:
            return set()
        indexes, phase = {self.all}, job.status.phase
        if phase is Phase.SUSPENDED:
            indexes.add(self.suspended)
        if not job.spec.suspend and (phase is None or not phase.finished):
            indexes.add(self.unfinished)
        return {(index, job.spec.partition) for index in indexes}
