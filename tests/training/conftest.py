"""`make test-training`: torch alone takes 4 s and 500 MB, in each process that imports it."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--training",
        action="store_true",
        help="Run the tests of the training; only with their folder as argument.",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out where nobody asked for it: elsewhere the option is unknown."""
    return None if config.getoption("--training", default=False) else True
