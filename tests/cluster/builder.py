"""Builds the repository's Dockerfile without a container engine, as root.

Each step is a layer of an overlay file system, kept in the cache under a digest
of all that went into it, so that a later build redoes only what has changed. ``FROM debian`` is
done by debootstrap; the last stage has to be ``FROM scratch`` with nothing but COPY.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apiserver.build import cache_root
from cluster.archives import write_archive, write_layer
from cluster.dockerfile import Copy, DockerfileError, Ignored, Run, Stage, parse

__all__ = ["BuildError", "Image", "build"]

STEP_SECONDS = 900
"""For one step of the Dockerfile; the longest, debootstrap's, took 80 s on 2 cores."""

DEBIAN = "debian:"
EMPTY = "empty"
MOUNTS = "mounts"


class BuildError(Exception):
    """A step failed; the message has the end of what it said."""


@dataclass(frozen=True)
class Image:
    """A built image.

    Attributes
    ----------
    archive
        What ``ctr images import`` takes.
    layers
        Folders of its layers, the lowest first.
    digest
        Of its layers' and its configuration's content: two builds of the same are the same.
    config
        How its containers start.
    """

    archive: Path
    layers: tuple[Path, ...]
    digest: str
    config: Mapping[str, object]

    def size(self) -> int:
        """Return how many bytes its files take once unpacked."""
        stats = (path.lstat() for layer in self.layers for path in layer.rglob("*"))
        return sum({s.st_ino: s.st_size for s in stats if stat.S_ISREG(s.st_mode)}.values())


def build(context: Path, name: str, *, cache: Path | None = None) -> Image:
    """Build ``context``'s Dockerfile and return the image, under ``name`` in its archive.

    Raises
    ------
    BuildError
        A step failed.
    DockerfileError
        The Dockerfile has something that is not understood.
    """
    kept = cache or cache_root(os.environ) / "image"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _Build(context, kept).image(name)


class _Build:
    def __init__(self, context: Path, cache: Path) -> None:
        self._context = context
        self._cache = cache
        self._ignored = Ignored((context / ".dockerignore").read_text())
        self._stages: dict[str, list[str]] = {}
        self._used: set[str] = {EMPTY, MOUNTS}
        (cache / EMPTY).mkdir(exist_ok=True)
        for unfinished in cache.glob("*.part*"):
            shutil.rmtree(unfinished)

    def image(self, name: str) -> Image:
        """Do every stage; layers that this build has no use for are dropped."""
        *others, last = parse((self._context / "Dockerfile").read_text())
        for stage in others:
            self._stages[stage.name] = self._stage(stage)
        if last.base != "scratch" or not all(isinstance(step, Copy) for step in last.steps):
            raise DockerfileError("the last stage has to be FROM scratch with nothing but COPY")
        layers = [self._cache / layer for layer in self._stage(last)[1:]]
        archive = self._archive(name, layers, last.config)
        for path in self._cache.iterdir():
            if path.is_dir() and path.name not in self._used:
                shutil.rmtree(path)
            elif path.suffix == ".tar" and path != archive:
                path.unlink()
        return Image(archive, tuple(layers), archive.stem, last.config)

    def _archive(self, name: str, layers: Sequence[Path], config: Mapping[str, object]) -> Path:
        """Write the archive; its layers have one date, one owner and one order of files."""
        date = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        parts = self._cache / "layers.part"
        parts.mkdir()
        tars = []
        for number, layer in enumerate(layers):
            tars.append(parts / f"{number}.tar")
            write_layer(tars[-1], layer, date=date)
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date))
        written = parts / "image.tar"
        write_archive(written, name, tars, config, made=made)
        digest = hashlib.sha256(written.read_bytes()).hexdigest()[:16]
        archive = self._cache / f"{digest}.tar"
        written.replace(archive)
        shutil.rmtree(parts)
        return archive

    def _stage(self, stage: Stage) -> list[str]:
        """Return the layers of a stage, the lowest first, made where they are not there."""
        if stage.base == "scratch":
            layers = [EMPTY]
        elif stage.base in self._stages:
            layers = list(self._stages[stage.base])
        elif stage.base.startswith(DEBIAN):
            layers = [self._debian(stage.base)]
        else:
            raise DockerfileError(
                f"FROM {stage.base}: only Debian, scratch and stages are had here"
            )
        if stage.config and "Env" in stage.config and any(isinstance(s, Run) for s in stage.steps):
            raise DockerfileError(f"stage {stage.name}: ENV and RUN in one stage")
        for step in stage.steps:
            layers.append(self._step(layers, step))
        return layers

    def _debian(self, base: str) -> str:
        suite = base.removeprefix(DEBIAN).removesuffix("-slim")
        return self._layer([base], f"FROM {base}", lambda upper: _debootstrap(suite, upper))

    def _step(self, below: Sequence[str], step: Run | Copy) -> str:
        if isinstance(step, Run):
            return self._layer(
                [*below, step.command, *step.caches],
                f"RUN {step.command}",
                lambda upper: self._run(below, step, upper),
            )
        title = f"COPY {' '.join(step.sources)} {step.target}"
        if step.stage:
            return self._layer(
                [*below, *self._stages[step.stage], *step.sources, step.target],
                title,
                lambda upper: self._copy_from_stage(step, upper),
            )
        contents = [
            f"{name} {(self._context / name).stat().st_mode:o} {_digest(self._context / name)}"
            for source in step.sources
            for name in self._ignored.files(self._context, source)
        ]
        return self._layer(
            [*below, *step.sources, step.target, *contents],
            title,
            lambda upper: self._copy(step, upper),
        )

    def _layer(self, made_of: Sequence[str], title: str, make: Callable[[Path], None]) -> str:
        """Return the name of the layer that is made of this; make it if it is not kept."""
        digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
        self._used.add(digest)
        if not (self._cache / digest).exists():
            began = time.monotonic()
            part = self._cache / f"{digest}.part"
            part.mkdir()
            make(part)
            part.rename(self._cache / digest)
            print(f"{time.monotonic() - began:6.1f} s  {title[:80]}", flush=True)  # noqa: T201
        return digest

    def _copy(self, step: Copy, upper: Path) -> None:
        for source in step.sources:
            for name in self._ignored.files(self._context, source):
                inner = str(name.relative_to(source))
                if inner != ".":  # a folder's content, not the folder
                    target = upper / step.target.lstrip("/") / inner
                elif step.target.endswith("/"):
                    target = upper / step.target.lstrip("/") / name.name
                else:
                    target = upper / step.target.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self._context / name, target)

    def _copy_from_stage(self, step: Copy, upper: Path) -> None:
        (source,) = step.sources
        target = upper / step.target.strip("/")
        target.mkdir(parents=True, exist_ok=True)
        work = upper.with_suffix(".part-merged")
        work.mkdir()
        script = (
            f"mount -t overlay -o lowerdir={self._lower(self._stages[step.stage])} overlay {work}"
            f" && cp --archive {work}{source}/. {target}/"
        )
        _unshared(["/bin/sh", "-c", script], f"COPY --from={step.stage} {source}", {})
        work.rmdir()

    def _lower(self, layers: Sequence[str]) -> str:
        """Name layers as overlayfs wants them: the topmost first, and two at least."""
        return ":".join(str(self._cache / layer) for layer in [*reversed(layers), EMPTY])

    def _run(self, below: Sequence[str], step: Run, upper: Path) -> None:
        work, merged = (upper.with_suffix(f".part-{name}") for name in ("work", "merged"))
        for folder in (work, merged):
            folder.mkdir()
        overlay = f"lowerdir={self._lower(below)},upperdir={upper},workdir={work}"
        environment, given = machine_settings()
        lines = [
            f"mount -t overlay -o {overlay} overlay {merged}",
            f"mount -t proc proc {merged}/proc",
            f"mount --rbind /dev {merged}/dev",
            f"mount -t tmpfs tmpfs {merged}/run",
            *(f"install -D --mode=644 {path} {merged}/run/machine{path}" for path in given),
            f"cp --remove-destination /etc/resolv.conf {merged}/etc/resolv.conf",
        ]
        for cache in step.caches:
            own = self._cache / MOUNTS / cache.strip("/").replace("/", "-")
            own.mkdir(parents=True, exist_ok=True)
            lines.append(f"mkdir -p {merged}{cache}")
            lines.append(f"mount --bind {own} {merged}{cache}")
        lines.append(f'exec chroot {merged} /bin/sh -c "$STEP"')
        script = " && ".join(lines)
        _unshared(["/bin/sh", "-c", script], step.command, environment | {"STEP": step.command})
        merged.rmdir()
        shutil.rmtree(work)


def machine_settings() -> tuple[dict[str, str], list[str]]:
    """Return what this machine's downloads need: variables, and files that some of them name.

    A machine behind a proxy or with a certificate of its own says so in its environment; the
    files are put below ``/run/machine``, which no layer keeps.
    """
    environment, files = {}, list[str]()
    for name, value in os.environ.items():
        if not name.lower().endswith(("_proxy", "_ca_bundle", "ssl_cert_file", "pip_cert")):
            continue
        if value.startswith("/") and Path(value).is_file():
            files.append(value)
            environment[name] = f"/run/machine{value}"
        else:
            environment[name] = value
    return environment, sorted(set(files))


def _debootstrap(suite: str, target: Path) -> None:
    _unshared(["debootstrap", "--variant=minbase", suite, str(target)], f"debootstrap {suite}", {})


def _unshared(command: Sequence[str], title: str, environment: Mapping[str, str]) -> None:
    """Run a command with mounts and processes of its own, which end with it.

    The environment is that of `docker build`: what the machine needs, and no more.
    """
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        | {"DEBIAN_FRONTEND": "noninteractive"}
        | dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=STEP_SECONDS,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildError(f"{title[:200]} failed with code {done.returncode}:\n{tail}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
