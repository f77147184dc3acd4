"""A segment tree that finds the first sufficiently large number of a sequence."""

from collections.abc import Sequence

__all__ = ["NONE", "SegmentTree"]

NONE = -1
"""No index; also the value of an element that is never large enough."""


class SegmentTree:
    """A max-tree over a sequence; finds the first sufficiently large value in O(log n).

    Parameters
    ----------
    values
        Natural numbers, or `NONE` for elements that are never large enough.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self._size = 1 << max(len(values) - 1, 0).bit_length()
        self._tree = tree = [NONE] * (2 * self._size)
        tree[self._size : self._size + len(values)] = values
        for node in range(self._size - 1, 0, -1):
            left, right = tree[2 * node], tree[2 * node + 1]
            tree[node] = left if left > right else right  # noqa: FURB136 - `max` takes thrice as long

    def __getitem__(self, index: int) -> int:
        return self._tree[self._size + index]

    @property
    def maximum(self) -> int:
        """The largest value; `NONE` if the sequence is empty."""
        return self._tree[1]

    def set(self, index: int, value: int) -> None:
        """Change one value."""
        tree, node = self._tree, self._size + index
        if tree[node] == value:
            return
        tree[node] = value
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            larger = left if left > right else right  # noqa: FURB136
            if tree[node] == larger:
                return
            tree[node] = larger

    def first(self, least: int, start: int = 0) -> int:
        """Return the first index from `start` on with a value >= `least` (0 or more), or `NONE`."""
        tree, size = self._tree, self._size
        if start >= size:
            return NONE
        node = size + start if start else 1
        while tree[node] < least:  # climb to the next subtree on the right
            while node & 1:
                node >>= 1
            if not node:
                return NONE
            node += 1
        while node < size:
            node *= 2
            if tree[node] < least:
                node += 1
        return node - size
