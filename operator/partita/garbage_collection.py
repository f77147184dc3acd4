"""Python's garbage collector, in a process that holds tens of thousands of objects for long."""

import gc

__all__ = ["collect_rarely"]

_ALLOCATIONS = 50_000
"""Objects that may be allocated before those among them are looked at; Python's default is 700
(https://docs.python.org/3.11/library/gc.html#gc.set_threshold). A decision on 10,000 jobs allocates
80,000, and collections were a quarter of its time (measured)."""


def collect_rarely() -> None:
    """Leave what is there now out of collections for good, and collect the rest less often.

    What is freed by reference counting, which is nearly everything, is freed at once as before.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
