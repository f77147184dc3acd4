"""The repository's examples on a true node: as they stand, but for what their containers run."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.images import ROOT

__all__ = ["IMAGE", "write_examples"]

IMAGE = "localhost/examples:test"
COMMAND = '[fake-cuda, "alloc:300", forever]'
"""Takes some of its GPU and computes until it is ended."""

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def write_examples(folder: Path) -> None:
    """Copy the examples, with an image that the node has: what users do who try them."""
    for file in EXAMPLES:
        text = re.sub(r"(?m)^( +image:) \S+", rf"\1 {IMAGE}", file.read_text())
        (folder / file.name).write_text(re.sub(r"command: .*", f"command: {COMMAND}", text))
