"""Builds the images of the tests' Pods with buildah: Partita's own by `tools/image.sh`.

No registry is needed: `FROM debian` is made by debootstrap. As a command this builds Partita's
image, which takes minutes the first time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apiserver.build import cache_root
from partita import __version__

__all__ = [
    "DEBIAN",
    "JOB",
    "PARTITA",
    "ROOT",
    "BuildError",
    "Image",
    "buildah",
    "engine",
    "main",
    "make_image",
    "partita_image",
    "write_busybox",
]

ROOT = Path(__file__).resolve().parents[2]

PARTITA = f"docker.io/library/partita:{__version__}"
"""Operator, agent and console, under the name by which `manifests/` asks for it."""
JOB = "localhost/job:test"
"""A user's job: busybox, and a program that uses a GPU through CUDA."""
DEBIAN = "docker.io/library/debian:trixie-slim"
"""What the Dockerfile's first stage is made FROM."""

APPLETS = [
    "cat",
    "env",
    "grep",
    "id",
    "ls",
    "mkdir",
    "nc",
    "readlink",
    "sh",
    "sleep",
    "test",
    "touch",
]
"""What a test's container may want to run."""
KEPT_LAYERS = 150
"""Images and cached layers, of which one build makes 20; with more, all but Debian are removed."""
BUILD_SECONDS = 1800
"""For one command; the longest, a build with nothing cached, took 210 s on 2 cores."""


class BuildError(Exception):
    """A command failed; the message has the end of its output."""


@dataclass(frozen=True)
class Image:
    """An image in an archive that `ctr images import` accepts."""

    archive: Path

    @property
    def identity(self) -> str:
        """Digest of its configuration, and by it of its layers: equal images are the same."""
        return str(self._manifest()["Config"])

    def files(self) -> dict[str, int]:
        """Return the size in bytes of each file."""
        found: dict[str, int] = {}
        with tarfile.open(self.archive) as archive:
            for layer in self._manifest()["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                    found |= {m.name: m.size for m in files if not m.isdir()}
        return found

    def _manifest(self) -> dict:
        with tarfile.open(self.archive) as archive:
            file = archive.extractfile("manifest.json")
            assert file is not None
            (manifest,) = json.load(file)
        return manifest


@contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Variables for `tools/image.sh`; nobody else builds meanwhile."""
    folder = _folder()
    with _locked(folder):
        _bound(folder)
        _ensure_debian(folder)
        yield _variables()


def partita_image() -> Image:
    """Build Partita's image of this work tree, which takes seconds where nothing changed."""
    folder = _folder()
    archive = folder / "partita.tar"
    with engine():
        make_image(ROOT, ARCHIVE=str(archive))
        # Others may then build the next one into the same file.
        kept = folder / f"{Image(archive).identity.removeprefix('sha256:')[:16]}.tar"
        shutil.copy(archive, kept)
    return Image(kept)


def make_image(folder: Path, *arguments: str, **variables: str) -> str:
    """Run `tools/image.sh` of a work tree; return its output."""
    return _run([str(folder / "tools" / "image.sh"), *arguments], **variables)


def buildah(*arguments: str | Path) -> str:
    """Run buildah on the tests' own storage; return its output."""
    return _run(["buildah", *map(str, arguments)])


def write_busybox(
    archive: Path,
    name: str,
    entrypoint: Sequence[str],
    *,
    programs: Sequence[Path] = (),
    base: str = "scratch",
) -> None:
    """Write an image of busybox and of other programs, which find their libraries in the base."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox is not on PATH")
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "root"
        for folder in ("usr/bin", *(("dev", "etc", "proc", "sys") if base == "scratch" else ())):
            (root / folder).mkdir(parents=True)
        if base == "scratch":
            (root / "tmp").mkdir()
            (root / "tmp").chmod(0o1777)
        for program in (Path(busybox), *programs):
            Path(shutil.copy(program, root / "usr/bin")).chmod(0o755)
        for applet in APPLETS:
            (root / "usr/bin" / applet).symlink_to("busybox")
        recipe = Path(temporary) / "Dockerfile"
        recipe.write_text(
            f"FROM {base}\nCOPY root /\nENV PATH=/usr/bin\nUSER 0:0\n"
            f"ENTRYPOINT {json.dumps(list(entrypoint))}\n"
        )
        buildah("build", "--quiet", "--timestamp", "0", "--tag", name, temporary)
    buildah("push", "--quiet", name, f"docker-archive:{archive}:{name}")


def _folder() -> Path:
    folder = cache_root(os.environ) / "image"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bound(folder: Path) -> None:
    """Keep the cache from growing without end."""
    for archive in sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime)[:-4]:
        archive.unlink()
    if len(buildah("images", "--all", "--quiet").split()) > KEPT_LAYERS:
        _run(
            [
                "sh",
                "-c",
                f"buildah images -aq | grep -v $(buildah images -q {DEBIAN}) | xargs buildah rmi -f",
            ]
        )


def _ensure_debian(folder: Path) -> None:
    """Make the base image, unless the storage has it."""
    if buildah("images", "--quiet", "--filter", f"reference={DEBIAN}"):
        return
    suite = DEBIAN.rpartition(":")[2].removesuffix("-slim")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        root = Path(temporary) / "root"
        _run(["debootstrap", "--variant=minbase", suite, str(root)])
        (Path(temporary) / "Dockerfile").write_text(
            "FROM scratch\nCOPY root /\nENV PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
        )
        buildah("build", "--quiet", "--timestamp", "0", "--tag", DEBIAN, temporary)


def _variables() -> dict[str, str]:
    """Have buildah build in the tests' own storage."""
    folder = _folder()
    settings, temporary = folder / "storage.conf", folder / "tmp"
    temporary.mkdir(exist_ok=True)
    settings.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\n'
        f'runroot = "/run/partita-tests/storage"\n'
    )
    return {
        "ENGINE": "buildah",
        # No container is started for a step: this needs neither runc nor a network of its own.
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(settings),
        "TMPDIR": str(temporary),  # RUN --mount=type=cache keeps its folders there
    }


def _run(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | _variables() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildError(f"{' '.join(command)[:200]} failed with code {done.returncode}:\n{tail}")
    return done.stdout.strip()


def main() -> int:
    """Build the image and print its size."""
    image = partita_image()
    print(f"{image.archive} {sum(image.files().values()) / 1e6:.1f} MB unpacked")  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
