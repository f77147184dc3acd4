"""Who judges the rights of a whole run, of one process or of several."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apiserver import used_rights
from apiserver.used_rights import (
    ACCOUNTS,
    FOUND,
    note_used,
    pytest_configure,
    pytest_sessionfinish,
    pytest_testnodedown,
)
from support.clusters import NOT_RUN

VERBS = ("get", "list")


@pytest.fixture(autouse=True)
def manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grant each account to get and list Pods."""
    role = {"kind": "ClusterRole", "metadata": {"name": "reader"}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [*VERBS]}]
    binding = {
        "kind": "ClusterRoleBinding",
        "roleRef": {"kind": "ClusterRole", "name": "reader"},
        "subjects": [{"name": account} for account in ACCOUNTS],
    }
    monkeypatch.setattr(used_rights, "render", lambda _: [{**role, "rules": rules}, binding])
    monkeypatch.setattr(used_rights, "find_kubectl", lambda: Path("kubectl"))


def a_run(*, worker: bool = False, keyword: str = "") -> Any:
    """Return what pytest hands to plug-ins at the end of a run in which all tests passed."""
    option = SimpleNamespace(server="apiserver", keyword=keyword, markexpr="", collectonly=False)
    source = pytest.Config.ArgsSource.TESTPATHS
    config = SimpleNamespace(option=option, stash=pytest.Stash(), args_source=source)
    if worker:
        config.workeroutput = {}
    config.stash[NOT_RUN] = {}
    pytest_configure(config)  # type: ignore[arg-type]
    return SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)


def use(run: Any, folder: Path, *verbs: str) -> None:
    """Have each account use rights on the API server of a run."""
    allowed = {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": 'allowed by ClusterRoleBinding "x" of ClusterRole "reader"',
    }
    events = [
        {
            "verb": verb,
            "user": {"username": f"system:serviceaccount:partita-system:{account}"},
            "objectRef": {"resource": "pods"},
            "annotations": allowed,
        }
        for verb in verbs
        for account in ACCOUNTS
    ]
    log = folder / "audit.log"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    note_used(run.config, log)


def test_a_run_with_a_right_left_over_fails_and_names_it(tmp_path: Path):
    run = a_run()
    use(run, tmp_path, "get")
    pytest_sessionfinish(run)
    assert run.exitstatus is pytest.ExitCode.TESTS_FAILED
    assert run.config.stash[FOUND] == [
        f"{account} in manifests/base: not used: list pods (reader)" for account in ACCOUNTS
    ]


@pytest.mark.parametrize("second", VERBS)
def test_processes_are_judged_together_by_the_first(tmp_path: Path, second: str):
    first = a_run()
    for verb in ("get", second):
        process = a_run(worker=True)
        use(process, tmp_path, verb)
        pytest_sessionfinish(process)
        assert process.exitstatus is pytest.ExitCode.OK
        sent = json.loads(json.dumps(process.config.workeroutput))  # nothing but plain data
        pytest_testnodedown(SimpleNamespace(config=first.config, workeroutput=sent))
    pytest_sessionfinish(first)
    assert (first.exitstatus is pytest.ExitCode.OK) == (second == "list")


def test_a_part_of_the_suite_is_not_judged_and_says_so():
    run = a_run(keyword="claims")
    pytest_sessionfinish(run)
    assert run.exitstatus is pytest.ExitCode.OK
    (reason,) = run.config.stash[NOT_RUN]
    assert reason.startswith("only a part of the suite is run")


def test_a_run_with_failures_is_not_judged_and_stays_failed():
    run = a_run()
    run.exitstatus = pytest.ExitCode.TESTS_FAILED
    pytest_sessionfinish(run)
    assert run.config.stash[FOUND] == []
    assert list(run.config.stash[NOT_RUN]) == ["not all tests have passed"]
