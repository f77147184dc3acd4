"""What `make release` makes: it installs, runs, is whole, and is the same each time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from apiserver.binaries import COSIGN
from apiserver.build import assets
from partita import __version__
from release.conftest import EPOCH, ROOT, Release
from support.kubectl import Kubectl

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

pytestmark = pytest.mark.timeout(600)  # the first waits for some 50 packages to be downloaded


def run(release: Release, name: str, *arguments: str | Path) -> str:
    """Run a program of the environment that was empty."""
    done = subprocess.run(
        [release.trial / "environment" / "bin" / name, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(release.trial)},
        cwd=release.trial,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source: Path, target: Path, platform: str) -> None:
    what = ("--target", "wheel", "--target", "sdist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *what, "--directory", target],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PARTITA_WHEEL_PLATFORM": platform},
        check=True,
        capture_output=True,
    )


def test_it_runs_the_demo_from_an_empty_environment(release: Release) -> None:
    assert __version__ in run(release, "partita", "--version")
    said = run(release, "partita", "demo", "--speed", "40")
    jobs = [document for path in EXAMPLES for document in yaml.safe_load_all(path.read_text())]
    names = {job["metadata"]["name"] for job in jobs if job["kind"] == "SharedGPUJob"}
    assert names
    assert not [name for name in names if name not in said], said


@pytest.mark.parametrize(
    ("platform", "begins"),
    [
        ("manylinux_2_17_x86_64", b"\x7fELF\x02"),
        ("manylinux_2_17_aarch64", b"\x7fELF\x02"),
        ("macosx_11_0_x86_64", b"\xcf\xfa\xed\xfe\x07"),  # 64 bits, x86
        ("macosx_11_0_arm64", b"\xcf\xfa\xed\xfe\x0c"),  # 64 bits, ARM
    ],
)
def test_each_wheel_has_the_library_of_its_platform(
    release: Release, platform: str, begins: bytes
) -> None:
    with zipfile.ZipFile(release.file(f"*-py3-none-{platform}.whl")) as wheel:
        library = wheel.read("partita_policies/native/libpartita.so")
    assert library.startswith(begins)
    if begins.startswith(b"\x7fELF"):
        machine = {"x86_64": 62, "aarch64": 183}[platform.removeprefix("manylinux_2_17_")]
        assert int.from_bytes(library[18:20], "little") == machine


def test_the_wheels_hold_all_that_runs_and_no_tests(release: Release) -> None:
    assert len(release.wheels) == 4
    names, *others = [zipfile.ZipFile(wheel).namelist() for wheel in release.wheels]
    assert all(other == names for other in others)
    tops = {name.split("/")[0] for name in names}
    packages = {"partita", "partita_policies", "partita_research", "partita_testcluster"}
    assert tops == {*packages, f"partita-{__version__}.dist-info"}
    for pattern in (
        r"partita/examples/.*\.yaml",
        r"partita_policies/native/libpartita\.so",
        r".*dist-info/licenses/LICENSE",
    ):
        assert any(re.fullmatch(pattern, name) for name in names), pattern
    assert not [name for name in names if "test" in Path(name).name or "__pycache__" in name]
    tracked = subprocess.run(
        ["git", "ls-files", "operator/partita", "policies/partita_policies"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    sources = (".c", ".h")  # compiled into the library
    assert {path.split("/", 1)[1] for path in tracked if not path.endswith(sources)} <= set(names)


def test_the_sdist_makes_the_same_release(release: Release, tmp_path: Path) -> None:
    sdist, wheel = release.file("partita-*.tar.gz"), release.wheels[0]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert not list(source.rglob("tests"))
    build(source, tmp_path / "again", wheel.stem.rpartition("-")[2])
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    assert (tmp_path / "again" / sdist.name).read_bytes() == sdist.read_bytes()


@pytest.mark.parametrize("pattern", ["kubectl-*.tar.gz", "*-chart-*.tgz"])
def test_nothing_of_the_machine_is_in_an_archive(release: Release, pattern: str) -> None:
    for path in release.folder.glob(pattern):
        with tarfile.open(path) as archive:
            members = archive.getmembers()
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(int(EPOCH), 0, 0, "")}
        assert [m.name for m in members] == sorted(m.name for m in members)


async def test_with_kubectl_the_chart_is_packed(release: Release, kubectl: Kubectl) -> None:
    with tarfile.open(release.file(f"*-chart-{__version__}.tgz")) as archive:
        about = archive.extractfile("partita/Chart.yaml")
        assert about is not None
        chart = yaml.safe_load(about)
        names = archive.getnames()
    assert chart["version"] == chart["appVersion"] == __version__
    assert "partita/templates/deployment-partita-operator.yaml" in names


def test_the_bill_of_materials_names_what_is_installed_and_under_which_licence(
    release: Release,
) -> None:
    text = release.file("*.cdx.json").read_text()
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        __version__,
    )
    found = {(normal(c["name"]), c["version"]) for c in bill["components"]}
    lock = (ROOT / "requirements" / "base.txt").read_text()
    locked = {(normal(n), v) for n, v in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)}
    assert found <= locked
    names = {name for name, _ in found}
    assert {"aiohttp", "kopf", "kubernetes", "numpy"} <= names
    assert not {"hatchling", "pip", "pytest", "torch"} & names
    (root,) = (
        d for d in bill["dependencies"] if d["ref"] == bill["metadata"]["component"]["bom-ref"]
    )
    assert len(root["dependsOn"]) > 10
    unlicensed = {c["name"] for c in bill["components"] if not c.get("licenses")}
    assert unlicensed <= {"protobuf"}  # its metadata names none; it is BSD-3-Clause
    assert str(release.trial) not in text
    assert "file:" not in text


def test_the_sums_are_those_of_the_files(release: Release) -> None:
    lines = (release.folder / "SHA256SUMS").read_text().splitlines()
    told = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.name: path for path in release.folder.iterdir() if path.name in told}
    assert told == {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in files.items()}


def test_cosign_verifies_every_file_and_refuses_a_changed_one(
    release: Release, tmp_path: Path
) -> None:
    def verify(file: Path, name: str) -> int:
        options = ("--key", "partita.pub", "--insecure-ignore-tlog", "--bundle")
        command = [
            assets(what=COSIGN) / "cosign",
            "verify-blob",
            *options,
            f"{name}.sigstore.json",
            file,
        ]
        home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return subprocess.run(command, env=home, cwd=release.folder, check=False).returncode

    listed = (release.folder / "SHA256SUMS").read_text()
    names = {line.split("  ")[1] for line in listed.splitlines()} | {"SHA256SUMS"}
    assert {f"{name}.sigstore.json" for name in names} == {
        bundle.name for bundle in release.folder.glob("*.sigstore.json")
    }
    assert {name: verify(release.folder / name, name) for name in names} == dict.fromkeys(names, 0)
    changed = tmp_path / "changed"
    changed.write_text(f"{listed}\n")
    assert verify(changed, "SHA256SUMS") != 0


def test_the_image_is_an_oci_layout(release: Release) -> None:
    with tarfile.open(release.file("partita-image-*.tar")) as layout:
        assert "oci-layout" in layout.getnames()
        index = layout.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    assert __version__ in manifest["annotations"]["org.opencontainers.image.ref.name"]


def test_changes_name_this_release() -> None:
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] in {"Unreleased", __version__}


def normal(name: str) -> str:
    """Return a package's name as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()
