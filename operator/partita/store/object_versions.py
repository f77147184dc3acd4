"""Keeps the newest version of each object, whichever order the versions arrive in."""

from collections import OrderedDict
from typing import Any, Final, Protocol, TypeVar

from pydantic import ValidationError

from partita.models import Resource
from partita.store.unreadable import Unreadable, UnreadableObjects, as_far_as_read

__all__ = ["Tombstones", "apply_resource", "apply_view"]

Json = dict[str, Any]

_DELETED: Final = 10_000
"""Maximum number of UIDs of deleted objects."""


class _Versioned(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=_Versioned)
R = TypeVar("R", bound=Resource)


class Tombstones:
    """UIDs of the objects that were deleted last, so that a late response restores none."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> None:
        """Add a deleted object; the oldest ones are dropped."""
        self._uids[uid] = None
        while len(self._uids) > _DELETED:
            self._uids.popitem(last=False)


def apply_resource(
    model: type[R],
    plural: str,
    objects: dict[str, R],
    key: str,
    body: Json,
    *,
    deleted: bool,
    gone: Tombstones,
    unreadable: UnreadableObjects,
) -> None:
    """Apply a version of one of Partita's resources, or its deletion, to the objects by key."""
    uid = body["metadata"]["uid"]
    old = objects.get(key)
    if deleted:
        unreadable.discard(uid)
        gone.add(uid)
        if old is not None and old.metadata.uid == uid:
            del objects[key]
        return
    version = int(body["metadata"]["resourceVersion"])
    if uid in gone or (old is not None and int(old.metadata.resource_version) >= version):
        return
    try:
        objects[key] = model.parse(body)
        unreadable.discard(uid)
    except ValidationError as error:
        unreadable.add(Unreadable.of(plural, body, error))
        if old is not None and old.metadata.uid != uid:
            del objects[key]  # another object had this name
        elif old is not None:
            objects[key] = as_far_as_read(old, body)


def apply_view(objects: dict[str, V], key: str, new: V, *, deleted: bool, gone: Tombstones) -> None:
    """Apply a version of another object, or its deletion, to the objects by key."""
    old = objects.get(key)
    if deleted:
        gone.add(new.uid)
        if old is not None and old.uid == new.uid:
            del objects[key]
    elif new.uid not in gone and (old is None or old.version < new.version):
        objects[key] = new
