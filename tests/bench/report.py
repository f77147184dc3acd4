"""What runs of different subjects measured, and how they compare."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from bench.harness import Usage

__all__ = ["Comparison", "Run", "Targets", "show"]

WIDTH = 140


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of one subject measured.

    Attributes
    ----------
    done
        How many jobs, or Pods, it was about.
    wall
        Seconds from the first submission until all of them were done.
    used
        What each component used, by its name. Processor time counts from the first submission, the
        peak of memory from the start of the process.
    own
        What the benchmark used, with the nodes that it simulates.
    figures
        Other figures, by a name that says what and in which unit.
    """

    subject: str
    done: int
    wall: float
    used: dict[str, Usage]
    own: Usage
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """Processor time of all components for each that was done, ms."""
        return 1000 * sum(usage.cpu for usage in self.used.values()) / self.done


@dataclass(frozen=True, slots=True)
class Targets:
    """The most that a subject may take, relative to the fastest peer and absolute.

    Attributes
    ----------
    cpu
        None where nothing is promised.
    memory
        Peak memory, MB, by component.
    figures
        The most that other figures of a run may be, by name.
    """

    wall: float
    cpu: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of several subjects with equal work, in the order in which they ran.

    Attributes
    ----------
    peers
        The subjects that are not Partita. The others are compared with the one that took the least
        wall time.
    """

    title: str
    runs: list[Run]
    peers: frozenset[str]
    targets: Targets

    def ratio(self, run: Run, value: Callable[[Run], float]) -> float | None:
        """Return how a figure of a run compares with that of the fastest peer, None for a peer."""
        by_peer = ([run for run in self.runs if run.subject == peer] for peer in sorted(self.peers))
        fastest = min(
            (runs for runs in by_peer if runs),
            key=lambda runs: statistics.mean(run.wall for run in runs),
            default=[],
        )
        if run.subject in self.peers or not fastest:
            return None
        return value(run) / statistics.mean(map(value, fastest))


def show(comparison: Comparison) -> None:
    """Print the runs beside each other, and the ratios."""
    console = Console(width=WIDTH, highlight=False)
    runs, targets = comparison.runs, comparison.targets
    table = Table("", *(run.subject for run in runs), title=comparison.title)

    def row(
        name: str, value: Callable[[Run], float | None], digits: int = 1, most: float | None = None
    ) -> None:
        table.add_row(name, *(_cell(value(run), digits, most) for run in runs))

    def relative(value: Callable[[Run], float], most: float | None) -> None:
        if comparison.peers:
            name = "  relative to the fastest peer"
            row(name, lambda run: comparison.ratio(run, value), 2, most)

    row("jobs or Pods", lambda run: run.done, 0)
    row("wall time, s", lambda run: run.wall)
    relative(lambda run: run.wall, targets.wall)
    row("CPU of all components, ms each", lambda run: run.cpu)
    if all(
        len(run.used) > 1 for run in runs
    ):  # of Kueue's own benchmark, the manager alone is known
        relative(lambda run: run.cpu, targets.cpu)
    components = dict.fromkeys(name for run in runs for name in run.used)
    for name in components:
        row(f"  {name}", lambda run, name=name: _of(run, name, lambda u: 1000 * u.cpu / run.done))
    row("the benchmark and its nodes, ms each", lambda run: 1000 * run.own.cpu / run.done)
    for name in components:
        peak = f"peak memory of {name}, MB"
        row(
            peak,
            lambda run, name=name: _of(run, name, lambda u: u.peak),
            0,
            targets.memory.get(name),
        )
    for name in dict.fromkeys(name for run in runs for name in run.figures):
        row(name, lambda run, name=name: run.figures.get(name), 2, targets.figures.get(name))
    console.print(table)


def _of(run: Run, component: str, value: Callable[[Usage], float]) -> float | None:
    return value(run.used[component]) if component in run.used else None


def _cell(value: float | None, digits: int, most: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:.{digits}f}"
    if most is None:
        return text
    return f"{text} ({'met' if value <= most else f'MISSED, at most {most:g}'})"
