"""Fills what was measured into docs/policies.md, and writes docs/policies/results.csv.

On the page it goes between `<!-- measured: NAME -->` and `<!-- end -->`; all else is written by
hand.
"""

import csv
import re
from pathlib import Path

from bench.policies import tables
from bench.policies.figures import Found

__all__ = ["fill", "measured"]

_PLACE = re.compile(r"(<!-- measured: ([\w-]+) -->).*?(<!-- end -->)", re.DOTALL)


def measured(found: Found) -> dict[str, str]:
    """Return what the page has of each name."""
    return {
        "preliminary": tables.preliminary(found),
        "dqn-worse": tables.worse_than_a_heuristic(found),
        "glance": tables.glance(found, "fifo"),
        "learnt": tables.learnt(found),
        "saturation": tables.allocated(found),
        "decisions": tables.decisions(found),
        "faults": tables.faults(found),
    }


def fill(docs: Path, found: Found) -> None:
    """Write what was measured into the page and the file beside it."""
    texts, page = measured(found), docs / "policies.md"
    old = page.read_text(encoding="utf-8")
    new = _PLACE.sub(lambda place: f"{place[1]}\n\n{texts[place[2]]}\n\n{place[3]}", old)
    page.write_text(new, encoding="utf-8")
    with (docs / "policies" / "results.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(tables.results(found))
