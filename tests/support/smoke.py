"""A pytest plug-in: where a folder's tests prove nothing more, only its smoke tests run.

A test marked ``smoke`` is one of the few of its folder that show that the parts fit together. The
others run at the tier that sees their faults at the least cost, and on all tiers in `make test-all`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SMOKE_ON_A_REAL_SERVER = ("agent", "console")
"""Folders whose subject meets an API server in a few reads and writes: a real one judges those, and
the rights for them; `make test` has all tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke",
        action="append",
        default=[],
        metavar="FOLDER",
        help="Run only the tests marked smoke in this folder of tests/; may be given several times.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "smoke: run also where only a part of its folder is.")
    for folder in config.getoption("--smoke"):
        if not (TESTS / folder).is_dir():
            raise pytest.UsageError(f"--smoke {folder}: there is no folder tests/{folder}.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not marked in the folders of which only a part is run."""
    names = [*config.getoption("--smoke")]
    if config.getoption("--server") != "embedded":
        names += SMOKE_ON_A_REAL_SERVER
    folders = [TESTS / name for name in names]
    left_out = [
        item
        for item in items
        if item.get_closest_marker("smoke") is None
        and str(item.path).startswith(tuple(f"{folder}/" for folder in folders))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
