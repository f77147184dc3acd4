"""The images of the tests' Pods, built as the repository's own are.

As a command it builds Partita's image, which takes minutes the first time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cluster.archives import write_busybox
from cluster.builder import Image, build
from gpu.fake import Built
from partita import __version__

__all__ = ["JOB", "PARTITA", "ROOT", "main", "partita_image", "write_job_image"]

ROOT = Path(__file__).resolve().parents[2]

PARTITA = f"docker.io/library/partita:{__version__}"
"""Operator, agent and console, under the name by which `manifests/` asks for it."""
JOB = "localhost/job:test"
"""A user's job: busybox, and a program that uses a GPU through CUDA."""


def partita_image() -> Image:
    """Build Partita's image of this work tree."""
    return build(ROOT, PARTITA)


def write_job_image(archive: Path, gpu: Built, partita: Image) -> None:
    """Write the jobs' image: the C library is that of Partita's."""
    write_busybox(archive, JOB, ["fake-cuda"], programs=[gpu.program], base=partita.layers[0])


def main() -> int:
    """Build the image and say what it weighs."""
    image = partita_image()
    print(f"{image.archive} {image.size() / 1e6:.1f} MB unpacked")  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
