"""`kubectl partita` as krew installs it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from partita import __version__
from release.conftest import ROOT, URL, Release
from support.clusters import find_kubectl
from support.kubectl import Kubectl

PROGRAM = "kubectl-partita"
SOURCE = ROOT / "tools" / "krew" / PROGRAM

pytestmark = pytest.mark.timeout(600)


def link(target: Path, folder: Path) -> Path:
    """Link to a program as krew does; return the folder of links."""
    folder.mkdir()
    (folder / PROGRAM).symlink_to(target)
    return folder


def call(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_the_manifest_is_as_krew_wants_it(release: Release) -> None:
    """The rules are those of krew's internal/index/validation/validate.go."""
    path = release.folder / "partita.yaml"
    manifest = yaml.safe_load(path.read_text())
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert manifest["metadata"] == {"name": path.stem}
    spec = manifest["spec"]
    assert spec["version"] == f"v{__version__}"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 60
    assert "\n" not in spec["shortDescription"]
    assert {"description", "caveats"} <= spec.keys()
    (platform,) = spec["platforms"]
    assert platform.keys() == {"selector", "uri", "sha256", "bin"}  # without files: takes all
    (rule,) = platform["selector"]["matchExpressions"]
    assert (rule["key"], rule["operator"], rule["values"]) == ("os", "In", ["darwin", "linux"])
    archive = release.file("kubectl-*.tar.gz")
    assert platform["uri"] == f"{URL}/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as packed:
        program = packed.getmember(platform["bin"])
        assert program.mode & 0o111
        names = set(packed.getnames())
    assert names == {
        PROGRAM,
        "LICENSE",
        "requirements.txt",
        *(wheel.name for wheel in release.wheels),
    }


async def test_kubectl_finds_and_runs_it(
    release: Release, kubectl: Kubectl, tmp_path: Path
) -> None:
    folder = link(release.trial / PROGRAM, tmp_path / "bin")
    binary = find_kubectl()
    assert binary is not None
    path = f"{folder}:{os.environ['PATH']}"
    said = call(binary, "partita", "--help", PATH=path, HOME=str(tmp_path))
    assert said.returncode == 0, said.stderr
    assert "explain" in said.stdout
    assert "Installing" not in said.stderr, "it is installed already"
    assert __version__ in call(binary, "partita", "--version", PATH=path).stdout


def test_without_a_python_it_says_what_it_needs(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "readlink"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    said = call(SOURCE, "top", PATH=str(tools))
    assert said.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13 with venv" in said.stderr
    assert "PARTITA_PYTHON" in said.stderr


def test_an_installation_that_fails_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "store" / PROGRAM
    program.parent.mkdir()
    shutil.copy(SOURCE, program)
    lock = "absent==1.0 --hash=sha256:" + "0" * 64 + "\n"
    (program.parent / "requirements.txt").write_text(lock)
    before = sorted(program.parent.iterdir())
    folder = link(program, tmp_path / "bin")
    for _ in range(2):
        said = call(folder / PROGRAM, "top", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
        assert said.returncode != 0
        assert "Installing Partita" in said.stderr
        assert "absent" in said.stderr
        assert said.stdout == ""
        assert sorted(program.parent.iterdir()) == before
