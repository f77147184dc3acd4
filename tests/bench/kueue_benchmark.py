"""Kueue's own scheduler benchmark, built and run from a checkout of Kueue.

Its runner starts etcd and kube-apiserver (ours, by `KUBEBUILDER_ASSETS`) and `minimalkueue`,
makes the workloads, and ends each once its time is over; there are no Pods. What it prints and
writes is Kueue's; nothing of Kueue is kept here. `minimalkueue` allows itself 50 requests a second
(test/performance/scheduler/minimalkueue/main.go), as Kueue does by default.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from apiserver.build import assets
from bench.harness import Usage, tell
from bench.report import Run

__all__ = ["kueue_checkout", "run_kueue"]

_FOLDER = Path("test/performance/scheduler")
_CRDS = Path("config/components/crd/bases")
_LIMIT = "60m"


def kueue_checkout(text: str) -> Path:
    """Return the working tree of github.com/kubernetes-sigs/kueue."""
    folder = Path(text).resolve()
    if not (folder / _FOLDER / "minimalkueue").is_dir():
        missing = f"{_FOLDER}/minimalkueue is missing"
        raise argparse.ArgumentTypeError(f"{text} is no checkout of Kueue: {missing}")
    return folder


def run_kueue(checkout: Path, jobs: int, share: float) -> Run:
    """Build it where that has not been done, run it, and read what it wrote.

    Parameters
    ----------
    checkout
        The binaries go into its `bin`.
    jobs
        How many workloads it makes with this share.
    share
        The part of its workloads that are made.
    """
    binaries = checkout / "bin"
    names = ("minimalkueue", "runner")
    if not all((binaries / name).is_file() for name in names):
        tell("building Kueue's benchmark (several minutes the first time)")
        command = ["go", "build", "-trimpath", "-o", f"{binaries}/"]
        _do([*command, *(f"./{_FOLDER}/{name}" for name in names)], checkout, "the build")
    with tempfile.TemporaryDirectory(prefix="partita-kueue-") as text:
        folder = Path(text)
        generator = folder / "generator.yaml"
        generator.write_text(yaml.safe_dump(_shrunk(checkout, share)))
        command = [str(binaries / "runner"), "--o", text, "--crds", str(checkout / _CRDS)]
        command += ["--generatorConfig", str(generator), "--timeout", _LIMIT]
        command += ["--minimalKueue", str(binaries / "minimalkueue")]
        _do(command, checkout, "Kueue's benchmark")
        stats = yaml.safe_load((folder / "minimalkueue.stats.yaml").read_text())
        summary = yaml.safe_load((folder / "summary.yaml").read_text())
    return _read(stats, summary, jobs)


def _shrunk(checkout: Path, share: float) -> dict[str, Any]:
    """Return the configuration of its baseline, with this share of the workloads."""
    path = checkout / _FOLDER / "configs" / "baseline" / "generator.yaml"
    made: dict[str, Any] = yaml.safe_load(path.read_text())
    for cohort in made["cohorts"]:
        for queues in cohort["queuesSets"]:
            for workloads in queues["workloadsSets"]:
                workloads["count"] = max(1, round(workloads["count"] * share))
    return made


def _do(command: list[str], folder: Path, what: str) -> None:
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets()), "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        sys.exit(f"{what} ended with code {done.returncode}.")


def _read(stats: dict[str, Any], summary: dict[str, Any], jobs: int) -> Run:
    queues = summary["clusterQueueClasses"].values()
    first = min(_time(queue["firstEventTime"]) for queue in queues)
    last = max(_time(queue["lastEventTime"]) for queue in queues)
    manager = Usage((stats["userMs"] + stats["sysMs"]) / 1000, stats["maxrss"] * 1024 / 1e6)
    means = {
        f"to admission, {name}: mean, s": figures["averageTimeToAdmissionMs"] / 1000
        for name, figures in sorted(summary["workloadClasses"].items())
    }
    return Run("Kueue", jobs, last - first, {"manager": manager}, Usage(0, 0), means)


def _time(value: object) -> float:
    return datetime.fromisoformat(str(value)).timestamp()
