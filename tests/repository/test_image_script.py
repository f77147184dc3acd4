"""`make image` among stand-ins for container engines; `make test-cluster` builds with a real one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from partita import __version__

ROOT = Path(__file__).parents[2]
NEEDED = ("sh", "dirname", "sed", "git", "mkdir", "rm", "cat")
NAME = f"docker.io/library/partita:{__version__}"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with all that the script needs but a container engine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def engine(tools: Path, name: str) -> None:
    """Put a stand-in for an engine there, which notes its arguments."""
    file = tools / name
    file.write_text(f'#!/bin/sh\necho "{name} $*" >>"{tools}/calls"\n')
    file.chmod(0o755)


def image(tools: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    archive = tools.parent / "image.tar"
    environment = {"PATH": str(tools), "SOURCE_DATE_EPOCH": "7", "ARCHIVE": str(archive)}
    return subprocess.run(
        ["sh", str(ROOT / "tools" / "image.sh")],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def calls(tools: Path) -> list[str]:
    return (tools / "calls").read_text().splitlines()


def test_without_an_engine_it_names_what_to_install(tools: Path):
    done = image(tools)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: `make image` needs docker, podman or buildah, and none of them is installed.\n"
        "On Debian and Ubuntu: apt-get install buildah\n"
    )


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("podman", "Error: ENGINE=podman is not installed.\n"),
        ("kaniko", "Error: ENGINE is kaniko; write docker, podman or buildah.\n"),
    ],
)
def test_an_engine_that_cannot_build_is_refused(tools: Path, chosen: str, message: str):
    engine(tools, "kaniko")
    done = image(tools, ENGINE=chosen)
    assert done.returncode == 1
    assert done.stderr == message


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_each_engine_builds_under_the_name_that_kubernetes_asks_for_and_saves(
    tools: Path, name: str
):
    engine(tools, name)
    done = image(tools)
    assert done.returncode == 0, done.stderr
    build, save = calls(tools)
    assert build.startswith(f"{name} build ")
    assert f"--tag {NAME} --build-arg SOURCE=https://" in build
    assert " 0 " in build or "=0 " in build, "the date depends on when it is built"
    archive = str(tools.parent / "image.tar")
    assert archive in save
    assert NAME in save
    assert f"kind load image-archive {archive}\n" in done.stdout
    assert f"{name} push registry.example.com/partita:{__version__}\n" in done.stdout


def test_it_takes_the_first_engine_a_name_and_what_pip_needs(tools: Path):
    for name in ("buildah", "docker"):
        engine(tools, name)
    variables = {"IMAGE": "registry.example.com/p:1", "PIP_CERT": "/ca.crt"}
    done = image(tools, **variables, PIP_CONFIG_FILE="/pip.conf")
    assert done.returncode == 0, done.stderr
    build, _ = calls(tools)
    assert build.startswith("docker build ")
    assert "--tag registry.example.com/p:1 " in build
    assert "--secret id=certificates,src=/ca.crt" in build
    assert "--secret id=pip.conf,src=/pip.conf" in build
