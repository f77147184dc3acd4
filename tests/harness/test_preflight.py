from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from cluster import preflight


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine that has everything; a test takes something away."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "spawnlp", lambda *_: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/bin/{tool}")
    for name in ("bridge", "host-local", "loopback"):
        (tmp_path / name).touch()
    monkeypatch.setattr(preflight, "PLUGIN_FOLDERS", (tmp_path / "none", tmp_path))
    monkeypatch.setattr(preflight, "CONTROLLERS", frozenset[str]())
    return monkeypatch


def test_a_machine_that_has_everything_lacks_nothing(machine: pytest.MonkeyPatch):
    assert [what for what in preflight.missing() if "cgroup" not in what] == []


def test_what_is_to_be_installed_is_told_in_one_command(machine: pytest.MonkeyPatch):
    machine.setattr(shutil, "which", lambda tool: None if tool in {"runc", "unshare"} else tool)
    machine.setattr(preflight, "PLUGIN_FOLDERS", ())
    (told,) = [what for what in preflight.missing() if "apt-get" in what]
    assert told.endswith(
        "apt-get install --no-install-recommends runc util-linux containernetworking-plugins"
    )


def test_who_is_not_root_is_told_so(machine: pytest.MonkeyPatch):
    machine.setattr(os, "geteuid", lambda: 1000)
    assert any(what.startswith("root: ") for what in preflight.missing())


def test_a_root_that_may_make_no_namespaces_is_told_so(machine: pytest.MonkeyPatch):
    machine.setattr(os, "spawnlp", lambda *_: 1)
    assert any(what.startswith("namespaces: ") for what in preflight.missing())


def test_a_missing_controller_is_named(machine: pytest.MonkeyPatch):
    machine.setattr(preflight, "CONTROLLERS", frozenset({"imagined"}))
    assert any("the cgroup controllers imagined " in what for what in preflight.missing())


def test_another_system_is_told_at_once(machine: pytest.MonkeyPatch):
    machine.setattr(sys, "platform", "darwin")
    assert preflight.missing() == ["Linux: a kubelet and containerd run on no other system"]
