"""The repository's examples on a true node: as they stand, but for where their images are."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import yaml

from cluster.images import PARTITA, ROOT, write_busybox
from gpu.fake import Built

__all__ = ["IMAGE", "write_examples", "write_image"]

IMAGE = "localhost/examples:test"
"""Has the programs of all of them."""

PROGRAM = "#!/bin/sh\nexec fake-cuda alloc:300 forever\n"
"""Stands for each of them: it takes some of its GPU and computes until it is ended."""

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def write_examples(folder: Path) -> None:
    """Copy the examples, with an image that the node has: what users do who try them."""
    for file in EXAMPLES:
        text, _ = re.subn(r"(?m)^( +image:) \S+", rf"\1 {IMAGE}", file.read_text())
        (folder / file.name).write_text(text)


def write_image(archive: Path, gpu: Built) -> None:
    """Write that image; its C library is that of Partita's, which must have been built."""
    with tempfile.TemporaryDirectory() as temporary:
        programs = [gpu.program]
        for name in sorted(_programs()):
            programs.append(Path(temporary) / name)
            programs[-1].write_text(PROGRAM)
        write_busybox(archive, IMAGE, ["false"], programs=programs, base=PARTITA)


def _programs() -> set[str]:
    """Return what the examples' containers run."""
    return {
        container["command"][0]
        for file in EXAMPLES
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] == "SharedGPUJob"
        for container in document["spec"]["template"]["spec"]["containers"]
    }
