"""The picture of a simulation: what ran where, what it used, and who waited."""

from partita_research.cli.charts.figure import draw, save

__all__ = ["draw", "save"]
