"""The free capacity of GPUs, kept from one decision to the next."""

from collections.abc import Iterator
from contextlib import contextmanager

from partita_policies.capacity import FreeCapacity
from partita_policies.types import Snapshot

__all__ = ["CapacityCache"]


class CapacityCache:
    """The free capacity in the last snapshot, from which that in the next one is derived.

    A decision has it for itself: one that hangs in another thread does not disturb the next.
    """

    def __init__(self) -> None:
        self._last: FreeCapacity | None = None

    @contextmanager
    def of(self, snapshot: Snapshot) -> Iterator[FreeCapacity]:
        """Lend the free capacity in a snapshot for one decision."""
        capacity, self._last = self._last, None
        if capacity is None or not capacity.follow(snapshot.gpus, snapshot.nodes):
            capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        yield capacity
        self._last = capacity
