"""Objects that the API server has stored and Partita's models cannot read.

They are older than a limit in their definition, or a newer release wrote them. Such an object is
never treated as absent: the version that was read last remains valid. If none was read, after a
restart, nothing that depends on the object is started, ended or released.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from pydantic import ValidationError

from partita.models import ObjectMeta, Resource
from partita.models.errors import describe
from partita.store.work_queue import WorkQueue

__all__ = ["Unreadable", "UnreadableObjects", "as_far_as_read"]

Json = dict[str, Any]
R = TypeVar("R", bound=Resource)

_KEYS = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One object that cannot be read."""

    plural: str
    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    partition: str
    """The partition in its spec; empty if that cannot be read either."""
    field: str
    """The first invalid field, without positions in lists: `spec.quotas[].memory`."""
    problem: str
    """What is invalid, and what to write instead."""
    conditions: tuple[Json, ...]
    """The conditions of its status, unparsed."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def of(cls, plural: str, body: Json, error: ValidationError) -> "Unreadable":
        """Return a record of an object and its validation error."""
        meta, spec, status = (_mapping(body.get(k)) for k in ("metadata", "spec", "status"))
        partition = spec.get("partition")
        problem = describe(error)
        conditions = status.get("conditions")
        return cls(
            plural=plural,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta["uid"],
            version=int(meta["resourceVersion"]),
            generation=meta.get("generation", 0),
            partition=partition if isinstance(partition, str) else "",
            field=_KEYS.sub("[]", problem.partition(":")[0]),
            problem=problem,
            conditions=tuple(conditions if isinstance(conditions, list) else ()),
        )


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


class UnreadableObjects:
    """All unreadable objects, by UID."""

    def __init__(self) -> None:
        self._found: dict[str, Unreadable] = {}
        self._of = defaultdict[str, dict[str, Unreadable]](dict)
        """By plural and UID: there may be thousands of jobs, of which most questions are not."""
        self.changed: WorkQueue[str] = WorkQueue(namespace=self._namespace)
        """UIDs of those that are new, have another version, or can be read now."""

    def __iter__(self) -> Iterator[Unreadable]:
        return iter(self._found.values())

    def get(self, uid: str) -> Unreadable | None:
        """Return the record of an object; None if the object can be read."""
        return self._found.get(uid)

    def problem(self, uid: str) -> str:
        """Return what is invalid in an object; empty if it can be read."""
        found = self._found.get(uid)
        return found.problem if found else ""

    def of(self, plural: str) -> Iterable[Unreadable]:
        """Return the objects of a kind."""
        return self._of[plural].values()

    def _namespace(self, uid: str) -> str:
        return self._found[uid].namespace if uid in self._found else ""

    def add(self, new: Unreadable) -> None:
        """Add an object, unless a newer version of it is present."""
        old = self._found.get(new.uid)
        if old is not None and old.version >= new.version:
            return
        self._found[new.uid] = self._of[new.plural][new.uid] = new
        self.changed.add(new.uid)

    def discard(self, uid: str) -> None:
        """Remove an object that can be read now or is deleted."""
        if (old := self._found.pop(uid, None)) is not None:
            del self._of[old.plural][uid]
            self.changed.add(uid)

    def about(self, partition: str) -> Iterator[tuple[str, str]]:
        """Yield UID and problem of a partition and its GPUServers, if they are unreadable."""
        own = (("GPUPartition", one) for one in self.of("gpupartitions") if one.name == partition)
        servers = (s for s in self.of("gpuservers") if s.partition in {partition, ""})
        for kind, one in chain(own, (("GPUServer", server) for server in servers)):
            yield one.uid, f"{kind} {one.name} cannot be read ({one.problem}): correct it"


def as_far_as_read(old: R, body: Json) -> R:
    """Return the last readable version of an object, with the readable parts of a newer version."""
    update: dict[str, object] = {"metadata": ObjectMeta.model_validate(body["metadata"])}
    status = type(old).model_fields.get("status")
    if status is not None and status.annotation is not None:
        with suppress(ValidationError):
            update["status"] = status.annotation.model_validate(body.get("status") or {})
    return old.model_copy(update=update)
