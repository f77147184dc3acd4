"""The histories of applications: which ApplicationProfile counts for a job."""

from partita.models import ApplicationProfile
from partita.models.profile import preferred

__all__ = ["Histories"]

Key = tuple[str, str]
"""Namespace and application."""


class Histories:
    """All ApplicationProfiles. Several may speak of one application: one of them counts."""

    def __init__(self) -> None:
        self.objects: dict[str, ApplicationProfile] = {}
        """By UID; after a change call `changed`."""
        self._of: dict[Key, list[ApplicationProfile]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def get(self, namespace: str, application: str) -> ApplicationProfile | None:
        """Return what is known of an application in a namespace."""
        return preferred(self._of.get((namespace, application), ()))

    def changed(self, old: ApplicationProfile | None, new: ApplicationProfile | None) -> set[Key]:
        """Take a profile in another's place; return the applications that are concerned."""
        concerned = set()
        if old is not None:
            key = _key(old)
            concerned.add(key)
            self._of[key].remove(old)
            if not self._of[key]:
                del self._of[key]
        if new is not None:
            concerned.add(_key(new))
            self._of.setdefault(_key(new), []).append(new)
        return concerned


def _key(profile: ApplicationProfile) -> Key:
    return profile.metadata.namespace, profile.spec.application
