"""Build the control plane of ``make test-apiserver`` from the Go module proxy, once.

etcd, kube-apiserver, kube-controller-manager and kubectl are compiled at the versions that the
two ``go.mod`` files beside this one name and ``go.sum`` pins by hash, and kept outside the work
tree, in a folder named after those files and the Go version: the next run finds them there.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BINARIES", "BuildError", "assets", "build", "cached", "main"]

HERE = Path(__file__).resolve().parent

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
"""What a folder of assets must hold; the names are those of envtest (``KUBEBUILDER_ASSETS``)."""

PROGRESS_SECONDS = 15
"""How often progress is told where the output is no terminal."""


class BuildError(Exception):
    """The control plane cannot be built here; the message says what to do about it."""


@dataclass(frozen=True)
class Module:
    """One Go module to build: its folder, the packages in it and what each becomes."""

    folder: Path
    packages: Mapping[str, str]
    version_of: str

    def version(self) -> str:
        """Return the version that ``go.mod`` requires of the module that is built."""
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^\s*{re.escape(self.version_of)} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.folder / 'go.mod'} does not require {self.version_of}.")
        return found[1]

    def ldflags(self) -> str:
        """Return linker flags: stripped, and Kubernetes told its version as its releases are."""
        if self.version_of != "k8s.io/kubernetes":
            return "-s -w"
        version = self.version()
        major, minor = version.removeprefix("v").split(".")[:2]
        told = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        return "-s -w " + " ".join(
            f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items()
        )


MODULES = (
    Module(
        folder=HERE / "etcd",
        packages={"go.etcd.io/etcd/server/v3": "etcd"},
        version_of="go.etcd.io/etcd/server/v3",
    ),
    Module(
        folder=HERE / "kubernetes",
        packages={
            f"k8s.io/kubernetes/cmd/{name}": name
            for name in ("kube-apiserver", "kube-controller-manager", "kubectl")
        },
        version_of="k8s.io/kubernetes",
    ),
)


def go_version(environment: Mapping[str, str]) -> str:
    """Return the version of the Go toolchain that will compile, such as ``go1.26.8``.

    Raises
    ------
    BuildError
        Go is missing, or older than ``go.mod`` asks for and told not to fetch a newer one.
    """
    needed = max(_go_directive(module.folder / "go.mod") for module in MODULES)
    wanted = ".".join(map(str, needed))
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise BuildError(
            f"Go is not installed (no `go` on PATH). Install Go {wanted} or newer, or set "
            "KUBEBUILDER_ASSETS to a folder that holds " + ", ".join(BINARIES) + "."
        )
    # Asked inside the module, a Go that may switch toolchains answers with the one it switched to.
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd=MODULES[-1].folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    version = answer.stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", version)
    if answer.returncode != 0 or numbers is None:
        raise BuildError(
            f"Go {wanted} or newer is needed, and {go} cannot provide it: "
            f"{answer.stderr.strip() or version or 'no version given'}"
        )
    if tuple(int(n or 0) for n in numbers.groups()) < needed:
        raise BuildError(f"{go} is {version}; Go {wanted} or newer is needed. Install a newer Go.")
    return version


def _go_directive(path: Path) -> tuple[int, ...]:
    found = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", path.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{path} has no go directive.")
    return tuple(int(n or 0) for n in found.groups())


def cache_folder(environment: Mapping[str, str], version: str) -> Path:
    """Return where binaries of these module files, this Go and this machine type belong."""
    digest = hashlib.sha256(f"{version} {platform.system()} {platform.machine()}\n".encode())
    for module in MODULES:
        digest.update(module.ldflags().encode())
        for name in ("go.mod", "go.sum"):
            digest.update((module.folder / name).read_bytes())
    root = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "partita" / "apiserver" / digest.hexdigest()[:16]


def missing(folder: Path) -> list[str]:
    """Return the binaries that ``folder`` does not hold as executable files."""
    return [name for name in BINARIES if not os.access(folder / name, os.X_OK)]


def cached(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of the binaries if they are already there; build nothing.

    Raises
    ------
    BuildError
        ``KUBEBUILDER_ASSETS`` is set, but names a folder that lacks a binary.
    """
    environment = os.environ if environment is None else environment
    if given := environment.get("KUBEBUILDER_ASSETS"):
        if lacking := missing(Path(given)):
            raise BuildError(f"KUBEBUILDER_ASSETS={given} lacks " + ", ".join(lacking) + ".")
        return Path(given)
    try:
        folder = cache_folder(environment, go_version(environment))
    except BuildError:
        return None
    return None if missing(folder) else folder


def assets(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder that holds `BINARIES`, building them first where needed.

    Raises
    ------
    BuildError
        They are not there and cannot be built; the message says what to do.
    """
    environment = os.environ if environment is None else environment
    return cached(environment) or build(environment)


def build(environment: Mapping[str, str]) -> Path:
    """Compile all binaries into the cache and return their folder.

    Two runs at once build once: the second waits for the first and finds its result.
    """
    version = go_version(environment)
    folder = cache_folder(environment, version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not missing(folder):
            return folder
        _say(f"Building the test control plane with {version}, once, into {folder}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as temporary:
            for module in MODULES:
                for package, name in module.packages.items():
                    _compile(module, package, Path(temporary) / name, environment)
            folder.mkdir(exist_ok=True)
            for name in BINARIES:
                (Path(temporary) / name).replace(folder / name)
        _say(f"Built in {time.monotonic() - began:.0f} s.")
    return folder


def _compile(module: Module, package: str, target: Path, environment: Mapping[str, str]) -> None:
    """Build one binary; the next one of its module finds the packages that they share."""
    _say(f"{target.name} {module.version()}: downloading modules and compiling")
    command = ["go", "build", "-mod=readonly", "-v", "-trimpath"]
    with subprocess.Popen(
        [*command, "-ldflags", module.ldflags(), "-o", str(target), package],
        cwd=module.folder,
        # Without cgo no C compiler is needed, and the binary does not depend on whether one was
        # there.
        env=dict(environment) | {"CGO_ENABLED": "0", "GOWORK": "off"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        other = _follow(process)
    if process.returncode != 0:
        raise BuildError(f"go build of {target.name} failed:\n" + "\n".join(other[-20:]))


def _follow(process: subprocess.Popen[str]) -> list[str]:
    """Show how far ``go build -v`` is; return what it said besides package names."""
    terminal = sys.stderr.isatty()
    began = told = time.monotonic()
    packages, downloads, other = 0, 0, list[str]()
    for line in process.stderr or ():
        if line.startswith("go: downloading"):
            downloads += 1
        elif " " in line.strip() or line.startswith("#"):
            other.append(line.rstrip())
        else:
            packages += 1
        now = time.monotonic()
        if now - told >= (0.2 if terminal else PROGRESS_SECONDS):
            told = now
            _say(
                f"  {now - began:4.0f} s: {downloads} modules downloaded, "
                f"{packages} packages compiled",
                end="\r" if terminal else "\n",
            )
    process.wait()
    _say(f"  {time.monotonic() - began:4.0f} s: {packages} packages compiled and linked")
    return other


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, end=end, flush=True)  # noqa: T201 - stdout is the folder alone


def main() -> int:
    """Run the command: print the folder of the binaries, having built them if needed."""
    parser = argparse.ArgumentParser(
        description="Build etcd, kube-apiserver, kube-controller-manager and kubectl from the Go "
        "module proxy for `make test-apiserver` (about 5 minutes on 2 cores, the first time), and "
        "print the folder that holds them.",
        epilog="KUBEBUILDER_ASSETS names a folder of ready binaries instead; XDG_CACHE_HOME moves "
        "the cache (default ~/.cache/partita/apiserver).",
    )
    parser.parse_args()
    try:
        folder = assets()
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    print(folder)  # noqa: T201 - the command's result
    return 0


if __name__ == "__main__":
    sys.exit(main())
