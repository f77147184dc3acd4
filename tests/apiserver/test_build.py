from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from apiserver import build
from apiserver.binaries import ALL, CONTROL_PLANE, NODE, BuildError, Module


def executable(path: Path, script: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_go(folder: Path, *, version: str = "go1.99.0", build_script: str = "exit 1") -> Path:
    """Make a `go` that answers its version and builds by a script with ``$out`` set."""
    return executable(
        folder / "go",
        f"""#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit 0; fi
while [ $# -gt 0 ]; do [ "$1" = -o ] && out="$2"; shift; done
{build_script}
""",
    ).parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_without_go_it_says_what_to_install_or_set():
    with pytest.raises(
        BuildError, match=r"Install Go 1\.26\.0 or newer, or set KUBEBUILDER_ASSETS"
    ):
        build.assets({"PATH": "/nowhere"})


def test_a_go_that_is_too_old_is_named(tmp_path: Path, environment: dict[str, str]):
    go = fake_go(tmp_path / "bin", version="go1.19.8")
    with pytest.raises(BuildError, match=rf"{go}/go is go1\.19\.8; Go 1\.26\.0 or newer is needed"):
        build.assets(environment)


def test_a_go_that_may_not_fetch_a_newer_one_is_told_in_its_words(
    tmp_path: Path, environment: dict[str, str]
):
    executable(
        tmp_path / "bin" / "go", "#!/bin/sh\necho 'go.mod requires go >= 1.26.0' >&2\nexit 1\n"
    )
    with pytest.raises(BuildError, match=r"cannot provide it: go\.mod requires go >= 1\.26\.0"):
        build.assets(environment)


def test_given_assets_are_taken_without_go(tmp_path: Path):
    for name in CONTROL_PLANE.names:
        executable(tmp_path / name)
    assert build.assets({"PATH": "", "KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_given_assets_that_lack_a_binary_are_refused(tmp_path: Path):
    for name in set(CONTROL_PLANE.names) - {"etcd"}:
        executable(tmp_path / name)
    (tmp_path / "etcd").touch()  # there, but not executable
    with pytest.raises(BuildError, match="lacks etcd"):
        build.assets({"PATH": "", "KUBEBUILDER_ASSETS": str(tmp_path)})


def test_builds_once_and_finds_it_again(
    tmp_path: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]
):
    fake_go(
        tmp_path / "bin",
        build_script="""
echo go: downloading example.org/module v1 >&2
echo example.org/package >&2
: >"$out"
chmod +x "$out\"""",
    )
    assert build.cached(environment) is None
    folder = build.assets(environment)
    assert folder.parent == tmp_path / "cache" / "partita" / "apiserver"
    assert sorted(path.name for path in folder.iterdir()) == sorted(CONTROL_PLANE.names)
    told = capfd.readouterr().err
    assert all(f"{name} v" in told for name in CONTROL_PLANE.names)
    assert "1 packages compiled and linked" in told
    assert build.assets(environment) == build.cached(environment) == folder
    assert capfd.readouterr().err == ""
    assert [path.name for path in folder.parent.glob("building-*")] == []


def test_another_go_builds_into_another_folder(environment: dict[str, str]):
    one, two = (build.cache_folder(environment, version) for version in ("go1.26.0", "go1.26.1"))
    assert one != two


def test_a_build_that_fails_tells_what_the_compiler_said(
    tmp_path: Path, environment: dict[str, str]
):
    fake_go(tmp_path / "bin", build_script="echo 'no space left on device' >&2; exit 1")
    with pytest.raises(BuildError, match=r"go build of etcd failed:\nno space left on device"):
        build.assets(environment)
    assert build.cached(environment) is None


@pytest.mark.parametrize(
    "module",
    [module for binaries in ALL for module in binaries.modules],
    ids=lambda module: f"{module.folder.name}-{'-'.join(module.packages.values())}",
)
def test_versions_are_pinned_by_hash(module: Module):
    assert f"{module.version_of} {module.version} h1:" in (module.folder / "go.sum").read_text()


def test_the_command_prints_the_folders_asked_for_or_the_reason(tmp_path: Path):
    given = {}
    for binaries in ALL:
        for name in binaries.names:
            executable(tmp_path / binaries.name / name)
        given[binaries.variable] = str(tmp_path / binaries.name)

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "apiserver.build", *arguments],
            env={"PATH": "/nowhere", "HOME": os.environ.get("HOME", "/")}
            | {"PYTHONPATH": str(Path(__file__).parents[1])}
            | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    one = run("apiserver", KUBEBUILDER_ASSETS=given["KUBEBUILDER_ASSETS"])
    assert (one.returncode, one.stdout.strip(), one.stderr) == (0, str(tmp_path / "apiserver"), "")
    every = run(*(binaries.name for binaries in ALL), **given)
    assert every.stdout.splitlines() == list(given.values())
    without = run("apiserver")
    assert (without.returncode, without.stdout) == (1, "")
    assert without.stderr.startswith("error: Go is not installed")
    assert "Traceback" not in without.stderr
    told = run("--help").stdout
    assert all(b.variable in told and f"make {b.target}" in told for b in ALL)


def test_every_set_is_built_by_the_target_that_needs_it():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for binaries in ALL:
        recipe = re.search(rf"^{binaries.target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert recipe is not None
        (built,) = re.findall(r"\$\(BUILD\) (.*)", recipe[1])
        assert binaries.name in built.split()


def test_the_node_is_built_apart_from_the_control_plane(
    tmp_path: Path, environment: dict[str, str]
):
    fake_go(tmp_path / "bin", build_script=': >"$out"; chmod +x "$out"')
    folder = build.assets(environment, NODE)
    assert folder.parent == tmp_path / "cache" / "partita" / "node"
    assert sorted(path.name for path in folder.iterdir()) == [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "kube-scheduler",
        "kubelet",
    ]
    assert build.cached(environment) is None, "the control plane is not built"


def test_a_node_that_lacks_a_binary_names_its_own_variable(tmp_path: Path):
    with pytest.raises(BuildError, match=r"PARTITA_NODE_ASSETS=.* lacks containerd, "):
        build.assets({"PATH": "", "PARTITA_NODE_ASSETS": str(tmp_path)}, NODE)
