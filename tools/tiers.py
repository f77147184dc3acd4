"""Say which tiers of tests a change can break; `.ci/run` makes what this prints, a target a line.

`WHOLE` is the table. A tier of which only the smoke tests run at each change runs whole when a file
below one of its paths has changed; the others are left to `make test-all`.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["ALL", "WHOLE", "main", "targets"]

ROOT = Path(__file__).resolve().parents[1]

SERVERS = ("tests/apiserver/etcd", "tests/apiserver/kubernetes")
"""The versions of Kubernetes and etcd."""
IMAGE = ("Dockerfile", "hatch_build.py", "tools/bytecode.py", "tools/image.sh")
"""What Partita's image is built by."""

WHOLE = {
    "conformance": (
        "operator/partita_testcluster/apiserver",
        "operator/partita/validation",
        "crds",
        "tests/conformance",
        *SERVERS,
    ),
    "cluster": (
        "operator/partita/agent",
        "operator/partita/pods",
        "tests/cluster",
        "tests/gpu",
        "tests/apiserver/containerd",
        *IMAGE,
        *SERVERS,
    ),
    "gitops": ("manifests", "tests/gitops", "tests/apiserver/argocd"),
    "training": ("policies", "examples/policies", "tests/training"),
    "browser": ("operator/partita/console", "tests/console"),
    "alerts": ("manifests/monitoring", "tests/metrics", "tests/apiserver/promtool"),
    "release": (
        "pyproject.toml",
        *IMAGE,
        "tools/release.py",
        "tools/signing.py",
        "tests/release",
        "tests/apiserver/cosign",
    ),
    "chaos": (
        "operator/partita/process",
        "operator/partita/jobs",
        "operator/partita/claims",
        "operator/partita/scheduling",
        "operator/partita/store",
        "tests/chaos",
    ),
}
"""Paths of which a changed file can break a tier that is not run whole at each change."""

CHAOS = "--seed 39"
"""Of the seeds below 1,000 the first with most kinds of faults, 39 of 42; two minutes."""

ALL = (
    "test-apiserver",
    "test-chaos ARGS=--kills 200 --faults 1000",
    "test-browser",
    "test-cluster",
    "test-gitops",
    "test-alerts",
    "test-release",
    "test-kueue",
    "test-training",
    "test-terminations",
)
"""What `make test-all` runs beside lint and `make coverage`, the longest first."""


def targets(changed: Iterable[str]) -> list[str]:
    """Return the targets of make, with their ARGS, that can see what changed files break."""
    changed = list(changed)
    whole = {
        tier
        for tier, paths in WHOLE.items()
        if any(name == path or name.startswith(f"{path}/") for name in changed for path in paths)
    }
    found = ["test-apiserver", "test-cluster"]
    if "conformance" not in whole:
        found[0] += " ARGS=--smoke conformance"
    if "cluster" not in whole:
        found[1] += " ARGS=--smoke cluster"
    found += [
        f"test-{tier}"
        for tier in ("training", "browser", "gitops", "alerts", "release")
        if tier in whole
    ]
    return [*found, f"test-chaos ARGS={CHAOS}"] if "chaos" in whole else found


def changed_files(base: str) -> list[str]:
    """Return the files that differ from a commit; without one, from a day before the newest.

    One submission has the commits of some hours, and those of earlier tries that did not land.
    A history that does not reach so far has changed everything.
    """
    if not base:
        newest = int(_git("log", "-1", "--format=%ct"))
        base = _git("rev-list", "-1", f"--before={newest - 24 * 3600}", "HEAD")
    return _git("diff", "--name-only", base, "HEAD").split() if base else _git("ls-files").split()


def _git(*words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.strip()


def main() -> int:
    """Print the targets; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--base",
        default=os.environ.get("CI_BASE", ""),
        metavar="COMMIT",
        help="what the change is compared with (CI_BASE; default: a day before the newest commit)",
    )
    parser.add_argument("--all", action="store_true", help="print what `make test-all` runs")
    options = parser.parse_args()
    print("\n".join(ALL if options.all else targets(changed_files(options.base))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
