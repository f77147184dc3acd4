"""Build the files of a release; run by `make release`.

    python tools/release.py dist [--url URL] [--key FILE]

The wheel is installed into an empty environment and started. The bill of materials describes this
environment: its packages, their licences and their dependencies.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

import chart
import plugin
import signing
from archives import write_archive
from partita import __version__

__all__ = ["SUMS", "build", "main", "make"]

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"


def main() -> int:
    """Make a release in the folder that is given as argument."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="made anew")
    parser.add_argument("--url", default="", help="where these files will be published, for krew")
    parser.add_argument("--key", type=Path, help="private key that signs the files, in PEM")
    parser.add_argument("--trial", type=Path, help="an empty folder for the environment; kept")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        trial = said.trial or Path(passing)
        make(said.folder, trial, said.url, shutil.which("kubectl"), key=said.key)
    return 0


def make(folder: Path, trial: Path, url: str, kubectl: str | None, *, key: Path | None) -> None:
    """Make a release in a new folder.

    Parameters
    ----------
    trial
        An empty folder; kubectl's plug-in is installed there and not removed.
    url
        Address of the published release, for krew's manifest. If empty, no manifest is made.
    kubectl
        Renders the manifests for the chart. If None, no chart is made.
    key
        Signs the files. If None, they are not signed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    epoch = _epoch()
    archive = build(folder, trial, epoch)
    with tarfile.open(archive) as packed:
        packed.extractall(trial, filter="data")
    said = _run(trial / plugin.PROGRAM, "--version")
    if __version__ not in said:
        raise RuntimeError(f"{archive} says that it is {said!r}")
    python = trial / "environment" / "bin" / "python"
    _run(python, "-m", "pip", "check")
    # pip and setuptools are not part of Partita, so the bill of materials must not contain them.
    _run(python, "-m", "pip", "uninstall", "--yes", "pip", "setuptools")
    _bill(folder / f"partita-{__version__}.cdx.json", python, epoch)
    if kubectl is None:
        _tell("no chart: there is no kubectl, which renders manifests/")
    else:
        _chart(folder / f"partita-chart-{__version__}.tgz", kubectl, epoch)
    if any(map(shutil.which, ("docker", "podman", "buildah"))):
        image = folder / f"partita-image-{__version__}.tar"
        _run("sh", "tools/image.sh", ARCHIVE=str(image.resolve()), FORMAT="oci")
    else:
        _tell("no image: there is no docker, podman or buildah, which builds it")
    if url:
        uri = f"{url.rstrip('/')}/{archive.name}"
        text = yaml.safe_dump(plugin.manifest(__version__, uri, archive), sort_keys=False)
        (folder / "partita.yaml").write_text(text, encoding="utf-8")
    else:
        _tell('no krew manifest: say where it will be, make release ARGS="--url https://..."')
    _sums(folder)
    if key is None:
        _tell('not signed: name a key, make release ARGS="--key FILE"')
    else:
        signing.sign(sorted(folder.iterdir()), key, folder / "partita.pub")


def build(folder: Path, work: Path, epoch: int) -> Path:
    """Build a wheel for each platform, the sdist and kubectl's plug-in; return the plug-in."""
    folder.mkdir(parents=True)
    command = (sys.executable, "-m", "hatchling", "build", "--directory", str(folder.resolve()))
    _run(*command, "--target", "sdist", epoch=epoch)
    for platform in _platforms():
        _run(*command, "--target", "wheel", epoch=epoch, PARTITA_WHEEL_PLATFORM=platform)
    lock = work / "runtime.txt"
    text = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    lock.write_text(plugin.runtime_lock(text), encoding="utf-8")
    archive = folder / f"{plugin.PROGRAM}-{__version__}.tar.gz"
    plugin.pack(archive, sorted(folder.glob("*.whl")), lock, epoch)
    lock.unlink()
    return archive


def _platforms() -> list[str]:
    """Return the platforms for which a release has wheels."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["tool"]["hatch"]["build"]["hooks"]["custom"]["zig-targets"])


def _bill(path: Path, python: Path, epoch: int) -> None:
    """Write the bill of materials of an environment (CycloneDX, https://cyclonedx.org)."""
    about = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as project:
        # cyclonedx-py cannot read a dynamic version.
        project.write(about.replace('dynamic = ["version"]', f'version = "{__version__}"'))
        project.flush()
        command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
        _run(*command, "--pyproject", project.name, "--output-file", path, python, epoch=epoch)


def _chart(path: Path, kubectl: str, epoch: int) -> None:
    rendered = _run(kubectl, "kustomize", ROOT / "manifests" / "helm")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work, "partita")
        chart.write(folder, rendered)
        files = {f.relative_to(work).as_posix(): f for f in folder.rglob("*") if f.is_file()}
        write_archive(path, files, epoch)


def _sums(folder: Path) -> None:
    """Write the files' digests in the format of `sha256sum --check`."""
    files = sorted(folder.iterdir())
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    for file in files:
        print(file)


def _epoch() -> int:
    """Return the time of the release: SOURCE_DATE_EPOCH, or the time of the commit if not set."""
    said = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct")
    return int(said)


def _run(*command: str | Path, epoch: int | None = None, **variables: str) -> str:
    environment = {**os.environ, **variables}
    if epoch is not None:
        environment["SOURCE_DATE_EPOCH"] = str(epoch)
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def _tell(what: str) -> None:
    print(what, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
