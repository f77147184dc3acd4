"""What runs of different subjects measured, and how they compare."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.table import Table

from bench.scale.meters import Usage

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
    least
        Seconds below which arrivals and capacity let nobody be done.
    targets
        None where nothing is promised.
    """

    title: str
    runs: list[Run]
    peers: frozenset[str]
    least: float = 0.0
    targets: Targets | None = None

    def ratio(self, run: Run, value: Callable[[Run], float]) -> float | None:
        """Return how a figure of a run compares with that of the fastest peer, None for a peer."""
        others = self._fastest_peer()
        if run.subject in self.peers or not others:
            return None
        return value(run) / statistics.mean(map(value, others))

    def _fastest_peer(self) -> list[Run]:
        """Return the runs of the peer that took the least wall time in the mean."""
        by_peer = ([run for run in self.runs if run.subject == peer] for peer in sorted(self.peers))
        return min(
            (runs for runs in by_peer if runs),
            key=lambda runs: statistics.mean(run.wall for run in runs),
            default=[],
        )


def show(comparison: Comparison) -> None:
    """Print the runs beside each other, and the ratios."""
    console = Console(width=WIDTH, highlight=False)
    runs, targets = comparison.runs, comparison.targets
    table = Table("", *(run.subject for run in runs), title=comparison.title)

    def row(name: str, value: Callable[[Run], float | None], digits: int) -> None:
        found = map(value, runs)
        table.add_row(name, *("" if one is None else f"{one:.{digits}f}" for one in found))

    def judged(name: str, value: Callable[[Run], float | None], most: float | None) -> None:
        table.add_row(name, *(_judged(value(run), most) for run in runs))

    row("jobs or Pods", lambda run: run.done, 0)
    row("wall time, s", lambda run: run.wall, 1)
    judged(
        "  relative to the fastest peer",
        lambda run: comparison.ratio(run, lambda one: one.wall),
        targets and targets.wall,
    )
    row("CPU of all components, ms each", lambda run: run.cpu, 1)
    judged(
        "  relative to the fastest peer",
        lambda run: comparison.ratio(run, lambda one: one.cpu),
        targets and targets.cpu,
    )
    components = dict.fromkeys(name for run in runs for name in run.used)
    for name in components:
        row(f"  {name}", partial(_cpu, component=name), 1)
    row("the benchmark and its nodes, ms each", lambda run: 1000 * run.own.cpu / run.done, 1)
    for name in components:
        most = targets.memory.get(name) if targets else None
        judged(f"peak memory of {name}, MB", partial(_peak, component=name), most)
    for name in dict.fromkeys(name for run in runs for name in run.figures):
        if targets and name in targets.figures:
            judged(name, partial(_figure, name=name), targets.figures[name])
        else:
            row(name, partial(_figure, name=name), 2)
    console.print(table)
    if comparison.least:
        console.print(f"Arrivals and capacity let nobody be done below {comparison.least:.1f} s.")


def _cpu(run: Run, component: str) -> float | None:
    used = run.used.get(component)
    return None if used is None else 1000 * used.cpu / run.done


def _peak(run: Run, component: str) -> float | None:
    used = run.used.get(component)
    return None if used is None else used.peak


def _figure(run: Run, name: str) -> float | None:
    return run.figures.get(name)


def _judged(value: float | None, most: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:.0f}" if value >= 10 else f"{value:.2f}"
    if most is None:
        return text
    return f"{text} ({'met' if value <= most else f'MISSED, at most {most:g}'})"
