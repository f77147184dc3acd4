"""Settings of Python's garbage collector: by default a command runs for a moment only."""

import gc

__all__ = ["collect_hardly_ever", "collect_often", "collect_rarely"]

_ALLOCATIONS = 50_000
"""Allocations between two collections of the youngest generation; Python's default is 700
(https://docs.python.org/3.11/library/gc.html#gc.set_threshold). A decision on 10,000 jobs allocates
80,000, and collections were a quarter of its time (measured)."""


def collect_hardly_ever() -> None:
    """Let a command start and do its work without searches for garbage, of which there is little.

    What runs on must call `collect_often` or `collect_rarely`.
    """
    gc.set_threshold(300_000)


def collect_often() -> None:
    """Keep the memory of a service low that has few objects."""
    gc.collect()
    gc.set_threshold(5_000)


def collect_rarely() -> None:
    """Exclude all current objects from collections, and collect the others less often.

    Reference counting, which frees nearly everything, is not affected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
