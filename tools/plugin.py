"""Pack `kubectl partita` for krew, kubectl's package manager.

krew unpacks an archive and links to the program in it; it does not run an installation. So the
archive contains a small program (`tools/krew/kubectl-partita`). At its first call the program
installs the wheel of its platform from the archive, with the packages of the lock file by their
hashes.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import chart
from archives import write_archive

__all__ = ["PROGRAM", "manifest", "pack", "runtime_lock"]

ROOT = Path(__file__).parents[1]
PROGRAM = "kubectl-partita"
BLOCK = re.compile(r"^([\w.-]+)==.*?(?=^[\w.-]+==|\Z)", re.MULTILINE | re.DOTALL)
"""A package of a lock file, with its hashes."""


def pack(archive: Path, wheels: Sequence[Path], lock: Path, epoch: int) -> None:
    """Write the archive with the program, the wheels of all platforms and the lock file."""
    files = {
        PROGRAM: ROOT / "tools" / "krew" / PROGRAM,
        **{wheel.name: wheel for wheel in wheels},
        "requirements.txt": lock,
        "LICENSE": ROOT / "LICENSE",
    }
    write_archive(archive, files, epoch)


def manifest(version: str, uri: str, archive: Path) -> dict[str, Any]:
    """Return krew's description of a release (https://krew.sigs.k8s.io/docs/developer-guide/).

    Parameters
    ----------
    uri
        Address for the download of the archive.
    """
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "partita"},
        "spec": {
            "version": f"v{version}",
            "homepage": chart.repository(),
            "shortDescription": "Share NVIDIA GPUs: submit, watch and explain jobs",
            "description": (
                "Submit jobs that share NVIDIA GPUs by Partita, see GPUs, slices and queues live,\n"
                "ask why a job waits, retry it, drain GPUs, and collect what a report needs.\n"
            ),
            "caveats": (
                "Needs Python 3.11, 3.12 or 3.13 with venv. The first call downloads Partita's\n"
                "packages, by their hashes, into the plug-in's own folder.\n"
            ),
            "platforms": [
                {
                    # On Windows krew accepts only .exe files.
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
                        ]
                    },
                    "uri": uri,
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }


def runtime_lock(text: str) -> str:
    """Return a lock file without the packages that are needed only to build Partita."""
    building = set(_needed("hatchling")) - set(_needed("partita"))
    blocks = BLOCK.finditer(text)
    return "".join(b[0] for b in blocks if canonicalize_name(b[1]) not in building)


def _needed(name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the names of an installed package and of its dependencies."""
    yield canonicalize_name(name)
    for line in distribution(name).requires or ():
        needed = Requirement(line)
        if needed.name not in seen and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            yield from _needed(needed.name, seen | {name, needed.name})
