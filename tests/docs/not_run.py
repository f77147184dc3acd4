"""A pytest plug-in that lists the commands of pages which no test runs, and why."""

from __future__ import annotations

import pytest

from docs.pages import NOT_RUN, PAGES, ROOT, read_page


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list if the pages were tested."""
    ran = {report.nodeid for report in terminalreporter.getreports("passed")}
    if not any("test_pages.py" in nodeid for nodeid in ran):
        return
    terminalreporter.section("commands of the documentation that are NOT RUN")
    commands = [(path, c) for path in PAGES for c in read_page(path).commands if c.not_run]
    for reason, explanation in NOT_RUN.items():
        terminalreporter.line(f"{reason}: {explanation}")
        for path, command in commands:
            if command.not_run == reason:
                place = f"{path.relative_to(ROOT)}:{command.line}"
                terminalreporter.line(f"  NOT RUN {place}: {command.text.splitlines()[0]}")
