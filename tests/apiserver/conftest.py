"""Lets what judges a whole run be the last of it, and only of a whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clusters import NOT_RUN

JUDGE = Path(__file__).with_name("test_used_rights.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    last = [item for item in items if item.path == JUDGE]
    items[:] = [item for item in items if item.path != JUDGE]
    if not last:
        return
    if reason := why_not(config):
        config.hook.pytest_deselected(items=last)
        config.stash[NOT_RUN][reason] = len(last)
    else:
        items += last


def why_not(config: pytest.Config) -> str:
    """Say why a run cannot tell which rights nobody needs."""
    option = config.option
    if option.server != "apiserver":
        return "rights are known to a real API server alone: run `make test-apiserver`"
    selected = option.keyword or option.markexpr or getattr(option, "lf", False)
    if config.args_source is pytest.Config.ArgsSource.ARGS or selected:
        return "only a part of the suite is run, which does not need all rights"
    if hasattr(config, "workerinput") or getattr(option, "numprocesses", None):
        return "each process of pytest-xdist has an API server of its own, and a part of the suite"
    return ""
