"""Suites that run only where an option asks for them; a pytest plug-in.

What they need is not on every machine, or takes minutes to make.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["asked_for"]

TESTS = Path(__file__).parents[1]
SUITES = {
    "--browser": "console/browser",
    "--cluster": "cluster",
    "--gitops": "gitops/argocd",
    "--kueue": "kube_scheduler/kueue",
    "--promtool": "metrics/alerts",
    "--release": "release",
    "--training": "training",
}
"""The folder of each; a target of make names both."""


def pytest_addoption(parser: pytest.Parser) -> None:
    for option, folder in SUITES.items():
        assert (TESTS / folder).is_dir(), folder
        parser.addoption(option, action="store_true", help=f"Run the tests in tests/{folder}.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the suites that nobody asks for, with their conftest files."""
    for option, folder in SUITES.items():
        if collection_path.is_relative_to(TESTS / folder) and not config.getoption(option):
            return True
    return None


def asked_for(config: pytest.Config, option: str) -> bool:
    """Say whether this run is for a suite, and does not only list its tests."""
    return bool(config.getoption(option)) and not config.option.collectonly
