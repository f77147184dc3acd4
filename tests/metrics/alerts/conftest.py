"""`make test-alerts`: what needs promtool, which Go builds; left alone unless asked for."""

from pathlib import Path

import pytest

from apiserver.binaries import PROMTOOL
from apiserver.build import cached


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program; without it every test fails, none is left out."""
    folder = cached(what=PROMTOOL)
    if folder is None:
        pytest.fail("promtool is not built: run `make test-alerts`")
    return folder / "promtool"
