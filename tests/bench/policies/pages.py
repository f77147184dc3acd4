"""Fills what was measured into the pages docs/policies.md and docs/policies/*.md.

It goes between `<!-- measured: NAME -->` and `<!-- end -->`; all else is written by hand.
"""

import re
from pathlib import Path

from bench.policies import tables
from bench.policies.figures import Found

__all__ = ["fill", "measured"]

_ARRIVALS = ("arrivals-8", "random 300x8 poisson 80 %")
_WRONG = ("faults", "random 300x8 poisson 80 %, wrong profiles")
_QUEUE = ("at-once", "random 300x8")
_PLACE = re.compile(r"(<!-- measured: ([\w-]+) -->)(\n?).*?(<!-- end -->)", re.DOTALL)


def measured(found: Found) -> dict[str, str]:
    """Return what the pages have of each name."""
    return {
        "preliminary": tables.preliminary(found),
        "dqn-worse": tables.worse_than_a_heuristic(found),
        "glance": tables.glance(found, "fifo"),
        "fifo-arrivals": tables.difference(found, *_ARRIVALS, "fifo", "tetris"),
        "fifo-wrong": tables.difference(found, *_WRONG, "fifo", "tetris"),
        "fifo-queue": tables.difference(found, *_QUEUE, "fifo", "tetris"),
        "dqn-arrivals": tables.difference(found, *_ARRIVALS, "dqn Completion", "tetris"),
        "dqn-queue": tables.difference(found, *_QUEUE, "dqn Completion", "tetris"),
        "fgd-arrivals": tables.difference(found, *_ARRIVALS, "fgd", "tetris"),
        "study": tables.scenes(found, "study"),
        "at-once": tables.scenes(found, "random", "at-once"),
        "learnt": tables.learnt(found),
        "arrivals": tables.scenes(found, "arrivals-8", "arrivals-64", "arrivals-1000", "patterns"),
        "faults": tables.wrong_profiles(found),
        "saturation": tables.allocated(found),
        "decisions": tables.decisions(found),
    }


def fill(docs: Path, found: Found) -> None:
    """Write what was measured into the pages."""
    texts = measured(found)
    for page in (docs / "policies.md", *sorted((docs / "policies").glob("*.md"))):
        old = page.read_text(encoding="utf-8")
        new = _PLACE.sub(lambda place: _filled(place, texts[place[2]]), old)
        page.write_text(new, encoding="utf-8")


def _filled(place: re.Match[str], text: str) -> str:
    block = f"\n\n{text}\n\n" if place[3] else text
    return f"{place[1]}{block}{place[4]}"
