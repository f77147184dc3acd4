"""Build the servers and tools that tests need, once: what there is stands in `apiserver.binaries`.

They are compiled from the Go module proxy and kept outside the work tree, in a folder named after
their ``go.mod`` and ``go.sum`` and the Go version: the next run finds them there.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from apiserver.binaries import ALL, CONTROL_PLANE, Binaries, BuildError, Module

__all__ = ["assets", "build", "cache_root", "cached", "main", "sources"]

PROGRESS_SECONDS = 15
"""How often progress is told where the output is no terminal."""


def go_version(environment: Mapping[str, str], what: Binaries = CONTROL_PLANE) -> str:
    """Return the version of the Go toolchain that will compile, such as ``go1.26.8``.

    Raises
    ------
    BuildError
        Go is missing, or older than ``go.mod`` asks for and told not to fetch a newer one.
    """
    needed = what.newest.go
    wanted = ".".join(map(str, needed))
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise BuildError(
            f"There is no `go` on PATH: run `make {what.target}`, install Go {wanted} or newer, or "
            f"set {what.variable} to a folder that holds " + ", ".join(what.names) + "."
        )
    # Asked inside the module, a Go that may switch toolchains answers with the one it switched to.
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd=what.newest.folder,
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


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return where all is kept that takes minutes to make."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "partita"


def cache_folder(
    environment: Mapping[str, str], version: str, what: Binaries = CONTROL_PLANE
) -> Path:
    """Return where binaries of these module files, this Go and this machine type belong."""
    digest = hashlib.sha256(f"{version} {platform.system()} {platform.machine()}\n".encode())
    for module in what.modules:
        digest.update(f"{module.ldflags} {module.tags}".encode())
        for name in ("go.mod", "go.sum"):
            digest.update((module.folder / name).read_bytes())
    return cache_root(environment) / what.name / digest.hexdigest()[:16]


def missing(folder: Path, what: Binaries = CONTROL_PLANE) -> list[str]:
    """Return the binaries that ``folder`` does not hold as executable files."""
    return [name for name in what.names if not os.access(folder / name, os.X_OK)]


def cached(
    environment: Mapping[str, str] | None = None, what: Binaries = CONTROL_PLANE
) -> Path | None:
    """Return the folder of the binaries if they are already there; build nothing.

    Raises
    ------
    BuildError
        Their variable is set, but names a folder that lacks a binary.
    """
    environment = os.environ if environment is None else environment
    if given := environment.get(what.variable):
        if lacking := missing(Path(given), what):
            raise BuildError(f"{what.variable}={given} lacks " + ", ".join(lacking) + ".")
        return Path(given)
    try:
        folder = cache_folder(environment, go_version(environment, what), what)
    except BuildError:
        return None
    return None if missing(folder, what) else folder


def assets(environment: Mapping[str, str] | None = None, what: Binaries = CONTROL_PLANE) -> Path:
    """Return the folder that holds the binaries, building them first where needed.

    Raises
    ------
    BuildError
        They are not there and cannot be built; the message says what to do.
    """
    environment = os.environ if environment is None else environment
    return cached(environment, what) or build(environment, what)


def build(environment: Mapping[str, str], what: Binaries = CONTROL_PLANE) -> Path:
    """Compile all binaries into the cache and return their folder.

    Two runs at once build once: the second waits for the first and finds its result.
    """
    version = go_version(environment, what)
    folder = cache_folder(environment, version, what)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not missing(folder, what):
            return folder
        _say(f"Building the {what.title} with {version}, once, into {folder}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as temporary:
            for module in what.modules:
                for package, name in module.packages.items():
                    _compile(module, package, Path(temporary) / name, environment)
            folder.mkdir(exist_ok=True)
            for name in what.names:
                (Path(temporary) / name).replace(folder / name)
        _say(f"Built in {time.monotonic() - began:.0f} s.")
    return folder


def sources(module: Module) -> Path:
    """Return the folder of a module's sources; where it is not kept any more, Go downloads it."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", module.version_of],
        cwd=module.folder,
        env=os.environ | {"GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["Dir"])


def _compile(module: Module, package: str, target: Path, environment: Mapping[str, str]) -> None:
    """Build one binary; the next one of its module finds the packages that they share."""
    _say(f"{target.name} {module.version}: downloading modules and compiling")
    command = ["go", "build", "-mod=readonly", "-v", "-trimpath"]
    with subprocess.Popen(
        [*command, "-tags", module.tags, "-ldflags", module.ldflags, "-o", str(target), package],
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
    """Run the command: print the folders of the binaries, having built them if needed."""
    sets = {binaries.name: binaries for binaries in ALL}
    parser = argparse.ArgumentParser(
        prog="python -m apiserver.build",
        description="Build what tests need from the Go module proxy, where it is not built yet, "
        "and print the folder of each set of binaries, in the order asked for.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sets of binaries, who needs them, and the variable that names a folder of ready "
        "ones instead:\n"
        + "\n".join(
            f"  {b.name:10} {', '.join(b.names)} (make {b.target}; {b.variable})" for b in ALL
        )
        + "\nXDG_CACHE_HOME moves the cache (default ~/.cache/partita).",
    )
    parser.add_argument("sets", nargs="+", choices=sets, metavar="SET", help="see below")
    try:
        folders = [assets(what=sets[name]) for name in parser.parse_args().sets]
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    for folder in folders:
        print(folder)  # noqa: T201 - the command's result
    return 0


if __name__ == "__main__":
    sys.exit(main())
