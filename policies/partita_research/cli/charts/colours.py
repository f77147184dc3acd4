"""Colours; an application has the same colour in all panels."""

from collections.abc import Iterable, Sequence

__all__ = ["BUSY", "FAINT", "INK", "KILLED", "MEMORY", "QUEUE", "colours_of", "ink_on"]

INK = "#263238"
FAINT = "#90a4ae"
BUSY = "#00796b"
MEMORY = "#5c6bc0"
QUEUE = "#78909c"
KILLED = "#d50000"

_PALETTE = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948",
    "#b07aa1", "#ff9da7", "#9c755f", "#6b9ac4", "#8cd17d", "#d4a6c8",
    "#499894", "#f1ce63", "#86bcb6", "#d37295",
)  # fmt: skip
"""From the palettes Tableau 10 and 20, which are made for categories, in another order."""


def colours_of(applications: Iterable[str]) -> dict[str, str]:
    """Return the colour of each application; colours repeat if there are too many applications."""
    return {
        name: _PALETTE[index % len(_PALETTE)]
        for index, name in enumerate(sorted(set(applications)))
    }


def ink_on(colour: str) -> str:
    """Return a dark or white text colour, readable on a colour (relative luminance, WCAG)."""
    channels: Sequence[float] = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 else "#ffffff"
