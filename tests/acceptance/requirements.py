"""What a check needs of the machine: which checks apply to it, and which cannot run on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.mps import ROOT
from acceptance.results import Outcome, Unmet

if TYPE_CHECKING:
    from acceptance.bench import Bench

__all__ = [
    "CGROUP_ROOT",
    "DMEM",
    "needs_ampere",
    "needs_cgroups",
    "needs_driver",
    "needs_mps",
    "needs_root",
    "needs_torch",
]

DMEM = "dmem.max"
"""Limit file of a cgroup where the kernel's controller dmem enforces limits:
https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Diagnostics"."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
_AMPERE = (8, 0)


def _not_run(reason: str) -> Unmet | None:
    return Unmet(Outcome.NOT_RUN, reason) if reason else None


def needs_mps(bench: Bench) -> Unmet | None:
    """MPS can be used."""
    return _not_run(bench.no_mps)


def needs_torch(bench: Bench) -> Unmet | None:
    """The programs of the check are written with torch."""
    return _not_run(bench.no_torch)


def needs_root(_bench: Bench) -> Unmet | None:
    """Root."""
    return _not_run("" if os.getuid() == ROOT else "it needs root")


def needs_ampere(bench: Bench) -> Unmet | None:
    """The GPU has static SM partitions."""
    capability = bench.identity.capability
    if capability is None or capability >= _AMPERE:
        return None
    return Unmet(
        Outcome.NOT_APPLICABLE, f"{bench.identity.product} is older than Ampere, the first with it"
    )


def needs_cgroups(bench: Bench) -> Unmet | None:
    """A cgroup of our own can be made, in the hierarchy that NVML takes limits for."""
    root = bench.cgroups
    if not (root / "cgroup.controllers").exists():
        return Unmet(Outcome.NOT_APPLICABLE, f"{root} is not cgroup v2")
    return _not_run("" if os.access(root, os.W_OK) else f"cgroups cannot be made in {root}")


def needs_driver(major: int, what: str) -> Callable[[Bench], Unmet | None]:
    """Require a driver of at least this major version, the first with `what`."""

    def check(bench: Bench) -> Unmet | None:
        found = bench.driver.partition(".")[0]
        if found.isdigit() and int(found) >= major:
            return None
        reason = f"driver {bench.driver} is older than r{major}, the first with {what}"
        return Unmet(Outcome.NOT_APPLICABLE, reason)

    return check
