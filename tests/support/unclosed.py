"""A pytest plug-in: what a test leaves unclosed fails that test, and not one that runs later.

An object in a reference cycle warns that it was not closed when its garbage is collected. pytest
turns the warning into a failure of the test that runs then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


def pytest_collection_finish() -> None:
    """Leave the imported modules out of each collection: they are most of the objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def garbage_collection() -> Iterator[None]:
    """Collect garbage after all other fixtures of the test have ended."""
    yield
    gc.collect()
