"""What the parts found, as comparisons of policies on the same seeds."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bench.policies.figures import Estimate, against, estimate
from bench.policies.parts import HEURISTICS

__all__ = ["SIMULATED", "Found", "Row", "best_heuristic", "compared", "judged", "scenes_of"]

Found = Mapping[str, Any]
"""What each part wrote, by its name."""

SIMULATED = (
    "study",
    "random",
    "at-once",
    "arrivals-8",
    "arrivals-64",
    "arrivals-1000",
    "patterns",
    "faults",
)
"""Parts whose figures are by scene, variant and figure, in the order of the report."""
_OBJECTIVES = {"makespan": "Makespan", "completion": "Completion"}


class Row(NamedTuple):
    """A policy on a workload, judged by a figure, against the best heuristic there."""

    part: str
    scene: str
    figure: str
    policy: str
    best: str
    apart: Estimate
    """Percent above it."""


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


def judged(found: Found) -> Iterator[Row]:
    """Yield `dqn` on every workload, under the objective that it is judged by.

    By the makespan if all jobs are there at once: of jobs that arrive, it depends on the last. By
    the mean completion time on all workloads.
    """
    for part in SIMULATED:
        for scene, rows in scenes_of(found, part).items():
            for figure, objective in _OBJECTIVES.items():
                if figure == "makespan" and "%" in scene:
                    continue
                policy = f"dqn {objective}"
                best = best_heuristic(rows, figure)
                if policy not in rows or not best:
                    continue
                yield Row(part, scene, figure, policy, best, compared(rows, policy, best, figure))
