"""Means and paired differences with their uncertainty, and what they say of `dqn`."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from partita_research.estimates import half_width

__all__ = [
    "HEURISTICS",
    "SIMULATED",
    "Estimate",
    "Found",
    "Row",
    "against",
    "best_heuristic",
    "compared",
    "estimate",
    "judged",
    "scenes_of",
]

HEURISTICS = ("fifo", "sjf", "tetris", "fgd", "least-harm")
Found = Mapping[str, Any]
"""What each part wrote, by its name."""
SIMULATED = (
    *("study", "random", "at-once", "arrivals-8", "arrivals-64", "arrivals-1000"),
    *("patterns", "faults"),
)
"""Parts whose figures are by scene, variant and figure, in the order of the report."""


class Estimate(NamedTuple):
    """A mean over samples that are independent of each other, by default one for each seed."""

    mean: float
    half: float
    """Half of its 95 % confidence interval."""
    count: int


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of values with its interval."""
    return Estimate(fmean(values), half_width(values), len(values))


def against(ours: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return by how many percent we are above others, from pairs that share their seed.

    Pairs in which the other is 0 are equal if both are, and are left out otherwise.
    """
    pairs = zip(ours, others, strict=False)
    shares = [
        100 * (mine / theirs - 1) if theirs else 0.0 for mine, theirs in pairs if theirs or not mine
    ]
    return estimate(shares or [0.0])


def scenes_of(found: Found, part: str) -> Mapping[str, Any]:
    """Return the scenes of a part with their variants; none if it did not run."""
    figures: Mapping[str, Any] = found[part]["figures"] if part in found else {}
    return figures


def compared(rows: Mapping[str, Any], ours: str, other: str, figure: str) -> Estimate:
    """Return by how many percent a variant is above another in a scene."""
    return against(rows[ours][figure], rows[other][figure])


def best_heuristic(rows: Mapping[str, Any], figure: str) -> str:
    """Return the heuristic with the least mean, of those under which all jobs finish, or none."""
    finishing = [name for name in HEURISTICS if name in rows and not sum(rows[name]["unfinished"])]
    return min(finishing, key=lambda name: estimate(rows[name][figure]).mean, default="")


class Row(NamedTuple):
    """A policy on a workload, judged by a figure, against the best heuristic there."""

    part: str
    scene: str
    figure: str
    policy: str
    best: str
    apart: Estimate
    """Percent above it."""


def judged(found: Found) -> Iterator[Row]:
    """Yield `dqn` on every workload, under the objective that it is judged by.

    By the makespan if all jobs are there at once: of jobs that arrive, it depends on the last. By
    the mean completion time on all workloads.
    """
    for part in SIMULATED:
        for scene, rows in scenes_of(found, part).items():
            for figure in ("completion",) if "%" in scene else ("makespan", "completion"):
                policy, best = f"dqn {figure.capitalize()}", best_heuristic(rows, figure)
                if policy in rows and best:
                    apart = compared(rows, policy, best, figure)
                    yield Row(part, scene, figure, policy, best, apart)
