"""Charts of simulations: jobs on each GPU, utilisation, and the number of waiting jobs."""

from partita_research.cli.charts.figure import draw, save

__all__ = ["draw", "save"]
