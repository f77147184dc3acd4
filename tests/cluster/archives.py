"""Image archives, written without a container engine.

The format is that of ``docker save``: a tar of layers, a configuration and ``manifest.json``
(https://github.com/moby/docker-image-spec/blob/main/spec.md, "Combined Image JSON + Filesystem
Changeset Format"), which ``ctr images import`` takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["busybox", "write_archive", "write_busybox", "write_layer"]

APPLETS = (
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
)
"""What a test's container may want to run."""


def write_archive(
    path: Path, name: str, layers: Sequence[Path], config: Mapping[str, Any], *, made: str = ""
) -> None:
    """Write an image of these layers (tars, the lowest first) to ``path``.

    Parameters
    ----------
    config
        What an image's ``config`` has: Entrypoint, Env, User, WorkingDir.
    made
        When it was made, in RFC 3339.
    """
    digests = [_digest(layer) for layer in layers]
    described = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": made or "1970-01-01T00:00:00Z",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [
        {
            "Config": config_name,
            "RepoTags": [name],
            "Layers": [f"{digest}.tar" for digest in digests],
        }
    ]
    with tarfile.open(path, "w") as archive:
        _add(archive, config_name, described)
        for digest, layer in dict(zip(digests, layers, strict=True)).items():
            with layer.open("rb") as content:
                info = tarfile.TarInfo(f"{digest}.tar")
                info.size = layer.stat().st_size
                archive.addfile(info, content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def write_layer(path: Path, folder: Path, *, date: int = 0) -> None:
    """Write a folder's content as a layer: one date, one owner, one order, whoever made it when."""
    with tarfile.open(path, "w") as tar:
        for file in sorted(folder.rglob("*")):
            info = tar.gettarinfo(file, str(file.relative_to(folder)))
            info.mtime, info.uid, info.gid, info.uname, info.gname = date, 0, 0, "", ""
            with contextlib.ExitStack() as stack:
                content = stack.enter_context(file.open("rb")) if info.isreg() else None
                tar.addfile(info, content)


def write_busybox(
    path: Path,
    name: str,
    entrypoint: Sequence[str],
    *,
    programs: Sequence[Path] = (),
    base: Path | None = None,
) -> None:
    """Write an image of busybox and of other programs.

    Parameters
    ----------
    programs
        Put into ``/usr/bin``.
    base
        Folder of a layer below, with the libraries that they need.
    """
    layers = []
    if base is not None:
        layers.append(path.with_suffix(".base"))
        write_layer(layers[0], base)
    layers.append(path.with_suffix(".layer"))
    with tarfile.open(layers[-1], "w") as tar:
        for folder in () if base is not None else ("dev", "etc", "proc", "sys", "tmp", "usr/bin"):
            info = tarfile.TarInfo(folder)
            info.type = tarfile.DIRTYPE
            info.mode = 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
        for program in (busybox(), *programs):
            _add(tar, f"usr/bin/{program.name}", program.read_bytes(), mode=0o755)
        for applet in APPLETS:
            info = tarfile.TarInfo(f"usr/bin/{applet}")
            info.type = tarfile.SYMTYPE
            info.linkname = "busybox"
            tar.addfile(info)
    write_archive(path, name, layers, {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/bin"]})
    for layer in layers:
        layer.unlink()


def busybox() -> Path:
    """Return the machine's busybox, which needs no library.

    Raises
    ------
    FileNotFoundError
        It has none.
    """
    found = shutil.which("busybox")
    if found is None:
        raise FileNotFoundError("busybox is not on PATH")
    return Path(found)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = mode
    archive.addfile(info, io.BytesIO(content))
