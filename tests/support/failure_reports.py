"""What servers say last, shown with the failure of a test that has them as a fixture."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, runtime_checkable

import pytest

__all__ = ["Reports"]


@runtime_checkable
class Reports(Protocol):
    """A fixture of servers."""

    def failure_report(self) -> list[tuple[str, str]]:
        """Return what tells most about a failure: titles and texts."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            if isinstance(fixture, Reports):
                report.sections += fixture.failure_report()
    return report
