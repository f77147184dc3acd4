"""Which scenes of a benchmark to run."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

__all__ = ["chosen"]


def chosen(
    parser: argparse.ArgumentParser, asked: Sequence[str], scenes: Collection[str]
) -> Collection[str]:
    """Return the scenes that the user asks for, or all; end with an error if there is none such.

    argparse's `choices` would refuse an empty list.
    """
    if unknown := set(asked).difference(scenes):
        parser.error(
            f"there is no scene {', '.join(sorted(unknown))}; there are {', '.join(scenes)}"
        )
    return asked or scenes
