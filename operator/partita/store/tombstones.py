"""Deleted objects, so that a late response cannot restore one."""

from collections import OrderedDict
from typing import Final

__all__ = ["Tombstones"]

_KEPT: Final = 10_000
"""Maximum number of UIDs."""


class Tombstones:
    """UIDs of the objects that were deleted last."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> None:
        """Add a deleted object; the oldest ones are dropped."""
        self._uids[uid] = None
        while len(self._uids) > _KEPT:
            self._uids.popitem(last=False)
