"""Write the lock files: what `make` installs, by version and hash, without any address.

Run by `make lock` with uv, whose universal resolution holds for every Python and platform that
pyproject.toml names. Each file begins with a digest of what it was resolved from, by which
`make lint` tells that it is stale without resolving anything.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

__all__ = ["FILES", "ROOT", "header", "main"]

ROOT = Path(__file__).resolve().parent.parent

FILES = {
    "requirements/base.txt": ("--group", "build"),
    "requirements/dev.txt": ("--group", "dev", "--all-extras"),
}
"""Lock file by what it holds beside the project's own dependencies."""


def header(root: Path = ROOT) -> str:
    """Return the first line of a lock file made from this pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    resolved_from = [
        project["project"]["requires-python"],
        project["project"]["dependencies"],
        project["project"]["optional-dependencies"],
        project["dependency-groups"],
    ]
    digest = hashlib.sha256(json.dumps(resolved_from).encode()).hexdigest()[:16]
    return f"# Made by `make lock` from pyproject.toml ({digest}); do not edit.\n"


def main(uv: str) -> None:
    """Resolve anew, keeping the versions that still fit; `--upgrade` takes the newest."""
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv else []
    constraints: list[str] = []
    for name, choice in FILES.items():
        path = ROOT / name
        command = [uv, "pip", "compile", "pyproject.toml", *choice, "--output-file", name]
        command += ["--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        subprocess.run([*command, *constraints, *upgrade], cwd=ROOT, check=True)  # noqa: S603
        path.write_text(header() + path.read_text(encoding="utf-8"), encoding="utf-8")
        constraints = ["--constraints", name]


if __name__ == "__main__":
    main(sys.argv[1])
