"""`make test-alerts`: what needs promtool, which Go builds; left alone unless asked for."""

from pathlib import Path

import pytest

from apiserver.binaries import PROMTOOL
from apiserver.build import cached


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--promtool",
        action="store_true",
        help="Run the tests of the alerts; only with their folder as argument.",
    )


def asked_for(config: pytest.Config) -> bool:
    """Say whether this run is for promtool; the option is unknown where nobody came here first."""
    return bool(config.getoption("--promtool", default=False))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if asked_for(config) else True


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program; without it every test fails, none is left out."""
    folder = cached(what=PROMTOOL)
    if folder is None:
        pytest.fail("promtool is not built: run `make test-alerts`")
    return folder / "promtool"
