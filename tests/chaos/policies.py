"""Policies of the worst sort, which the operators are given as somebody's plug-in."""

from __future__ import annotations

import threading
from pathlib import Path

from partita_policies.types import Parameters, Placement, Snapshot

__all__ = ["install_policies"]

HANGS_SECONDS = 5
"""Longer than any policy may take, shorter than a round."""


class _Policy:
    parameters = Parameters

    def __init__(self, parameters: Parameters) -> None:
        pass


class Hangs(_Policy):
    def decide(self, _: Snapshot) -> list[Placement]:
        threading.Event().wait(HANGS_SECONDS)
        return []


class Raises(_Policy):
    def decide(self, _: Snapshot) -> list[Placement]:
        raise ValueError("no idea")


class Overcommits(_Policy):
    def decide(self, snapshot: Snapshot) -> list[Placement]:
        return [Placement(job.id, (snapshot.gpus[0].id,)) for job in snapshot.jobs]


class Nonsense(_Policy):
    def decide(self, _: Snapshot) -> int:
        return 42


def install_policies(folder: Path) -> None:
    """Make the folder a place where they are installed."""
    info = folder / "chaos-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chaos\nVersion: 1.0\n")
    lines = [f"chaos-{p.__name__.lower()} = chaos.policies:{p.__name__}" for p in ALL]
    (info / "entry_points.txt").write_text("\n".join(["[partita.policies]", *lines]) + "\n")


ALL = (Hangs, Raises, Overcommits, Nonsense)
