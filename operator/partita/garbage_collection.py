"""Settings of Python's garbage collector for a process with tens of thousands of live objects."""

import gc

__all__ = ["collect_rarely"]

_ALLOCATIONS = 50_000
"""Allocations between two collections of the youngest generation; Python's default is 700
(https://docs.python.org/3.11/library/gc.html#gc.set_threshold). A decision on 10,000 jobs allocates
80,000, and collections were a quarter of its time (measured)."""


def collect_rarely() -> None:
    """Exclude all current objects from collections, and collect the others less often.

    Reference counting, which frees nearly everything, is not affected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
