"""Image archives, written without a container engine.

The format is that of ``docker save``: a tar of layers, a configuration and ``manifest.json``
(https://github.com/moby/docker-image-spec/blob/main/spec.md, "Combined Image JSON + Filesystem
Changeset Format"), which ``ctr images import`` takes.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["busybox", "write_archive", "write_busybox"]

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


def write_busybox(
    path: Path, name: str, entrypoint: Sequence[str], files: Mapping[str, Path] | None = None
) -> None:
    """Write an image of busybox, and of ``files`` at their places in it."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            info = tarfile.TarInfo(folder)
            info.type = tarfile.DIRTYPE
            info.mode = 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
        for place, source in {"bin/busybox": busybox(), **(files or {})}.items():
            _add(tar, place, source.read_bytes(), mode=0o755)
        for applet in APPLETS:
            info = tarfile.TarInfo(f"bin/{applet}")
            info.type = tarfile.SYMTYPE
            info.linkname = "busybox"
            tar.addfile(info)
    write_archive(path, name, [layer], {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]})
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
