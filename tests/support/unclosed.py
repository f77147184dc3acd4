"""A pytest plug-in: what a test leaves unclosed fails that test, and not one that runs later.

An object in a reference cycle warns that it was not closed when its garbage is collected. pytest
turns the warning into a failure of the test that runs then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count

import pytest

TESTS = count(1)
ALL = 100
"""After so many tests all objects are looked at, and not only what the last test has made."""


@pytest.fixture(autouse=True)
def garbage_collection() -> Iterator[None]:
    """Collect garbage after all other fixtures of the test have ended.

    What was there before the test is left out: modules and servers are most of the objects, and to
    look at them after each test took half of the time of all tests.
    """
    if next(TESTS) % ALL == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    yield
    gc.collect()
