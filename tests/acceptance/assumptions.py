"""What the test double and the agent assume of a GPU, read from their comments.

Such a comment begins with `An assumption (<check>): `, and its paragraph says what would change if it
is wrong. The check is the one that settles it, or `no check`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["NO_CHECK", "Assumption", "assumptions"]

NO_CHECK = "no check"
_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("tests/gpu", "operator/partita/agent", "operator/partita/pods")
_LINE_START = re.compile(r"^[ \t]*\*(?!/) ?|^[ \t]+", re.MULTILINE)
_ASSUMPTION = re.compile(r"An assumption \(([^)]+)\): (.+?)\s*(?:\n\n|\*/|\"\"\")", re.DOTALL)


class Assumption(NamedTuple):
    """One of them."""

    check: str
    text: str
    file: str


def assumptions() -> list[Assumption]:
    """Return all of them, by check."""
    files = [path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.[chp]*")]
    return sorted(
        Assumption(check, " ".join(text.split()), str(path.relative_to(_ROOT)))
        for path in files
        if path.suffix in {".c", ".h", ".py"}
        for check, text in _ASSUMPTION.findall(_LINE_START.sub("", path.read_text()))
    )
