"""A pytest plug-in: a whole run has used the rights of `manifests/`, all of them and no others.

Each process of pytest-xdist has an API server of its own. The first process judges what all of them
were asked for, and fails a run in which a right was missing, or one was left over.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from apiserver.rights import EVERYBODY, Right, Used, granted, noted, problems, render
from support.clusters import NOT_RUN, find_kubectl

__all__ = ["note_used"]

ACCOUNTS = ("partita-operator", "partita-agent", "partita-console")
USED = pytest.StashKey[dict[str, Used]]()
FOUND = pytest.StashKey[list[str]]()
KEY = "used rights"
"""Of what a process of pytest-xdist sends to the first one."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[USED] = {account: Used() for account in ACCOUNTS}
    config.stash[FOUND] = []


def note_used(config: pytest.Config, audit_log: Path) -> None:
    """Read what an API server was asked for, before its log is removed."""
    accounts = config.stash[USED]
    for account, event in noted(audit_log):
        if account in accounts:
            accounts[account].note(event)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what the API server of a process of pytest-xdist was asked for."""
    for account, (rights, refused) in getattr(node, "workeroutput", {}).get(KEY, {}).items():
        node.config.stash[USED][account].add(Used({Right(*r) for r in rights}, set(refused)))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge a whole run, or leave that to the first process."""
    config = session.config
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[KEY] = {
            account: ([tuple(right) for right in asked.rights], list(asked.refused))
            for account, asked in config.stash[USED].items()
        }
    elif config.option.server != "embedded" and not config.option.collectonly:
        if reason := _why_not(config, session.exitstatus):
            config.stash[NOT_RUN][reason] = len(ACCOUNTS)
            return
        config.stash[FOUND] += _judged(config.stash[USED].items())
        if config.stash[FOUND]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _why_not(config: pytest.Config, exit_status: int) -> str:
    """Say why a run cannot tell which rights nobody needs."""
    option = config.option
    selected = option.keyword or option.markexpr or getattr(option, "lf", False)
    if config.args_source is pytest.Config.ArgsSource.ARGS or selected:
        return "only a part of the suite is run, which does not need all rights"
    if exit_status != pytest.ExitCode.OK:
        return "not all tests have passed"
    return ""


def _judged(every: Iterable[tuple[str, Used]]) -> list[str]:
    kubectl = find_kubectl()
    assert kubectl is not None
    documents = render(kubectl)
    of_everybody = granted(documents, EVERYBODY)
    return [
        f"{account} in manifests/base: {problem}"
        for account, asked in every
        for problem in problems(granted(documents, account), of_everybody, asked)
    ]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the rights that are wrong."""
    for problem in config.stash[FOUND]:
        terminalreporter.write_line(f"FAILED: {problem}", red=True)
