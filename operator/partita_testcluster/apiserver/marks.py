"""Level-triggered work: objects are marked, and each is looked at in its current state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

__all__ = ["MarkedObjects"]

_BATCH = 50
"""Objects that are processed before other tasks can run."""


class MarkedObjects:
    """The UIDs of the objects to look at, each once, in the order of their marks."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}
        self._wake = asyncio.Event()

    def mark(self, *uids: str) -> None:
        """Add objects."""
        self._uids |= dict.fromkeys(uids)
        self._wake.set()

    async def process(self, look: Callable[[str], None]) -> NoReturn:
        """Call `look` with each marked object until cancelled."""
        done = 0
        while True:
            while not self._uids:
                self._wake.clear()
                await self._wake.wait()
            uid = next(iter(self._uids))
            del self._uids[uid]
            look(uid)
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)
