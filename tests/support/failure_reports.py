"""What servers say last, shown with the failure of a test that has them as a fixture."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what fixtures with a method `failure_report` return: titles and texts."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            if hasattr(type(fixture), "failure_report"):  # a mock itself would have anything
                report.sections += fixture.failure_report()
    return report
