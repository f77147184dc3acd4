from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from apiserver import controlplane
from apiserver.controlplane import FOLDER_PREFIX, ControlPlane
from apiserver.processes import NotReadyError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def binary(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_server_that_does_not_come_up_leaves_nothing(temporary: Path, tmp_path: Path):
    assets = tmp_path / "assets"
    assets.mkdir()
    binary(assets, "etcd", "echo cannot start; exit 4")
    with (
        pytest.raises(NotReadyError, match=r"etcd ended with code 4.*\ncannot start"),
        ControlPlane(assets),
    ):
        pytest.fail("it has started")
    assert list(temporary.glob(f"{FOLDER_PREFIX}*")) == []


def test_folders_of_killed_runs_are_removed_and_others_kept(temporary: Path):
    names = ("left", "new", "used", "without-lock")
    left, new, used, without = folders = [temporary / f"{FOLDER_PREFIX}{name}" for name in names]
    for folder in folders:
        folder.mkdir()
    for folder in (left, new, used):
        (folder / "lock").touch()
    for folder in (left, used, without):
        os.utime(folder, (0, 0))
    with (used / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        controlplane._sweep()
        assert sorted(temporary.glob(f"{FOLDER_PREFIX}*")) == [new, used, without]
