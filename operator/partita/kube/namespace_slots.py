"""Limits of concurrent requests, so that those of one namespace do not delay those of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

__all__ = ["NamespaceSlots"]


class NamespaceSlots:
    """Slots of all namespaces, of which one namespace gets a part: its webhook may be slow.

    Parameters
    ----------
    most
        Maximum number of concurrent requests.
    of_a_namespace
        Maximum number of those about objects of one namespace.
    """

    def __init__(self, most: int, of_a_namespace: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._of_a_namespace = of_a_namespace
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Have a slot of a namespace while the block runs."""
        slots = self._of.setdefault(namespace, asyncio.Semaphore(self._of_a_namespace))
        async with slots, self._all:
            yield
