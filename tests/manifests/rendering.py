"""Renders `manifests/` as their users do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from apiserver.binaries import MANIFESTS
from apiserver.build import assets
from support.kubectl import Kubectl

__all__ = [
    "BASE",
    "MUTATING",
    "OVERLAYS",
    "ROOT",
    "SINGLE_NODE",
    "documents",
    "helm",
    "is_taken",
    "kustomize",
    "write_chart",
]

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests" / "base"
OVERLAYS = sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())
MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
"""Served from Kubernetes 1.36 on; Helm asks the cluster, which it does not have here."""
SINGLE_NODE = ROOT / "manifests" / "overlays" / "single-node"


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run kustomize or helm."""
    command = [str(assets(what=MANIFESTS) / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kustomize(overlay: str) -> str:
    """Return an overlay's objects as YAML, or those of another folder of `manifests/`."""
    folder = BASE.parent / "overlays" / overlay
    folder = folder if folder.exists() else BASE.parent / overlay
    done = run("kustomize", "build", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_chart(folder: Path) -> Path:
    """Make the chart in a folder."""
    command = [sys.executable, str(ROOT / "tools" / "chart.py"), str(folder)]
    subprocess.run(command, input=kustomize("helm"), text=True, check=True, capture_output=True)
    return folder


def helm(chart: Path, *arguments: str, namespace: str = "partita-system") -> str:
    """Return the chart's objects as YAML, for a cluster as the one of these tests."""
    options = ("--namespace", namespace, "--kube-version", "1.36.0", "--api-versions", MUTATING)
    done = run("helm", "template", "partita", chart, *options, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def is_taken(kubectl: Kubectl, text: str) -> None:
    """Have the API server check each field of objects, as if they were applied."""
    arguments = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
    said = (await kubectl("apply", *arguments, "-f", "-", stdin=text)).ok()
    assert len(said.splitlines()) == len(documents(text))


def documents(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name."""
    found = [document for document in yaml.safe_load_all(text) if document]
    named = {(d["kind"], d["metadata"]["name"]): d for d in found}
    assert len(named) == len(found), "two objects have one name"
    return named
