"""Events that the operator writes, and what they are about."""

from dataclasses import dataclass

from partita.models.base import Resource

__all__ = ["EventSubject", "UserEvent"]


@dataclass(frozen=True, slots=True)
class EventSubject:
    """An object that Events are about."""

    api_version: str
    """Group and version, or only the version for the core group."""
    kind: str
    name: str
    namespace: str = ""
    """Its namespace; empty for an object of the cluster."""
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, found: Resource) -> "EventSubject":
        """Return an object of Partita as a subject."""
        meta, kind = found.metadata, type(found).__name__
        version = meta.resource_version
        return cls(found.api_version(), kind, meta.name, meta.namespace, meta.uid, version)

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> "EventSubject":
        """Return a Pod as a subject."""
        return cls("v1", "Pod", name, namespace, uid)


@dataclass(frozen=True, slots=True)
class UserEvent:
    """An Event about a job or a Pod, shown by `kubectl describe`."""

    reason: str
    message: str
    about: Resource | EventSubject
    warning: bool = False
