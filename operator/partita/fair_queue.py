"""A queue in which tenants take turns, so that a flood of one does not delay the others."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

K = TypeVar("K", bound=Hashable)


class FairQueue(Generic[K]):
    """Keys with a rank, the lowest first; among equals, tenants take turns.

    It is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) in which each key costs the
    same: a key's turn is one after that of its tenant's last key, and not before the turn that is
    served now.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, K]] = []
        self._ranks: dict[K, int] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._served: dict[int, int] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, key: K, tenant: str, rank: int = 0) -> None:
        """Add a key; one that is there already keeps the lower of its ranks."""
        if key in self._ranks and self._ranks[key] <= rank:
            return
        self._ranks[key] = rank
        turn = max(self._served.get(rank, 0), self._last.get((rank, tenant), -1) + 1)
        self._last[rank, tenant] = turn
        self._added += 1
        heapq.heappush(self._heap, (rank, turn, self._added, key))

    def pop(self) -> K:
        """Remove and return the next key.

        Raises
        ------
        IndexError
            There is none.
        """
        rank, turn, _, key = heapq.heappop(self._heap)
        while self._ranks.get(key) != rank:  # it was discarded, or has a lower rank now
            rank, turn, _, key = heapq.heappop(self._heap)
        del self._ranks[key]
        self._served[rank] = turn
        if not self._ranks:
            self._last.clear()
            self._served.clear()
            self._heap.clear()
        return key

    def discard(self, key: K) -> None:
        """Remove a key if it is there."""
        self._ranks.pop(key, None)
