"""The whole figure: one block for each policy, all with the same axes for comparison."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecFromSubplotSpec, SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from partita.cli.number_format import seconds
from partita_research.cli.charts.colours import BUSY, INK, KILLED, MEMORY, colours_of
from partita_research.cli.charts.panels import heat, jobs_on, plain, queue, use_of
from partita_research.cli.charts.series import lanes
from partita_research.simulator import Result, SimulatedAttempt, SimulatedOutcome

__all__ = ["draw", "save"]

GPUS_DRAWN = 8
"""Maximum number of GPUs that are drawn individually."""
_COLUMNS = {1: 1, 2: 2, 4: 2}
"""Blocks side by side, by number of policies; three for any other number."""
_LEGEND = 16
"""Maximum number of applications in the legend."""
_ENTRY = 1.25
"""Width of a legend entry in inches."""
_ENDS = {
    SimulatedOutcome.OUT_OF_MEMORY: "out of memory",
    SimulatedOutcome.RECLAIMED: "reclaimed",
}
"""Words for attempts that did not finish."""
_UNITS = ((1, "seconds", 10_000), (3600, "hours", 100), (86400, "days", inf))
"""Units of the time axis: seconds, name, and the longest time in this unit."""


def draw(results: Mapping[str, Result], title: str) -> Figure:
    """Draw simulations of the same jobs on the same GPUs under several policies.

    Parameters
    ----------
    results
        Results by policy; at least one.
    """
    return _Picture(results, title).draw()


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file name's extension; equal figures give equal files.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    kind = path.suffix.lower()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context({"svg.hashsalt": "partita"}):
        figure.savefig(path, dpi=160, metadata=metadata, facecolor="white")


class _Picture:
    def __init__(self, results: Mapping[str, Result], title: str) -> None:
        self._results = results
        self._title = title
        every = list(results.values())
        self._gpus = every[0].gpus
        self._columns = _COLUMNS.get(len(every), 3)
        self._rows = -(-len(every) // self._columns)
        self._start = min(result.start for result in every)
        self._end = max(self._start + 1e-9, *(result.end for result in every))
        self._waiting = max((n for r in every for _, n in r.waiting()), default=0)
        self._applications = {
            job.job: job.application or job.job for result in every for job in result.jobs
        }
        self._colours = colours_of(self._applications.values())
        self._single = len(self._gpus) <= GPUS_DRAWN
        self._most = max(_lanes(result) for result in every)
        self._width = {1: 11.0, 2: 7.2, 3: 5.6}[self._columns]

    def draw(self) -> Figure:
        heights = self._heights()
        margin, gap, head, foot = 0.95, 0.55, 0.4, 0.55
        block = sum(heights) + 0.55
        width = self._columns * self._width + 0.7
        height = self._rows * (block + gap) + head + foot
        figure = Figure(figsize=(width, height))
        grid = figure.add_gridspec(
            self._rows,
            self._columns,
            left=margin / width,
            right=1 - 0.25 / width,
            top=1 - (head + 0.3) / height,
            bottom=(foot + 0.35) / height,
            wspace=0.55 / self._width * 1.2,
            hspace=(gap + 0.25) / block,
        )
        figure.text(
            margin / width,
            1 - 0.22 / height,
            self._title,
            fontsize=12,
            fontweight="bold",
            color=INK,
            va="center",
        )
        for index, (policy, result) in enumerate(self._results.items()):
            place = grid[divmod(index, self._columns)]
            self._block(figure, place, heights, policy, result, first=index % self._columns == 0)
        self._legend(figure, foot / height)
        return figure

    def _heights(self) -> list[float]:
        """Return the height of each panel of a block in inches."""
        if self._single:
            bars = min(max(0.19 * self._most, 0.4), 2.2)
            return [bars, 0.5] * len(self._gpus) + [0.6]
        return [2.2, 2.2, 0.8]

    def _block(
        self,
        figure: Figure,
        place: SubplotSpec,
        heights: Sequence[float],
        policy: str,
        result: Result,
        *,
        first: bool,
    ) -> None:
        inner = GridSpecFromSubplotSpec(
            len(heights), 1, subplot_spec=place, height_ratios=heights, hspace=0.16
        )
        panels = [figure.add_subplot(inner[row]) for row in range(len(heights))]
        for axes in panels:
            plain(axes)
        if self._single:
            self._per_gpu(panels, result, first=first)
        else:
            for axes, busy in ((panels[0], True), (panels[1], False)):
                heat(axes, result, busy=busy, end=self._end)
                if first:
                    name = "how busy" if busy else "how full"
                    _label(axes, f"{len(self._gpus):,}\nGPUs:\n{name}")
        queue(panels[-1], result, self._waiting)
        if first:
            _label(panels[-1], "jobs that\nwait")
        for axes in panels:
            axes.set_xlim(self._start, self._end)
            axes.axvline(result.end, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
            if axes is not panels[-1]:
                axes.tick_params(labelbottom=False, bottom=False)
        self._time_axis(panels[-1])
        panels[0].set_title(policy, fontsize=10, fontweight="bold", loc="left", color=INK)
        panels[0].set_title(_figures(result), fontsize=8, loc="right", color=INK)

    def _time_axis(self, axes: Axes) -> None:
        span = self._end - self._start
        unit, name = next((unit, name) for unit, name, most in _UNITS if span <= most * unit)
        ticks = MaxNLocator(6).tick_values(self._start / unit, self._end / unit)
        inside = [tick for tick in ticks if self._start <= tick * unit <= self._end]
        axes.set_xticks([tick * unit for tick in inside], [f"{tick:g}" for tick in inside])
        axes.set_xlabel(name, fontsize=7, color=INK)

    def _per_gpu(self, panels: Sequence[Axes], result: Result, *, first: bool) -> None:
        colours = {job: self._colours[name] for job, name in self._applications.items()}
        for index, gpu in enumerate(self._gpus):
            bars, use = panels[2 * index], panels[2 * index + 1]
            attempts = [attempt for attempt in result.attempts if gpu.id in attempt.gpus]
            jobs_on(
                bars,
                attempts,
                colours,
                inches=self._width,
                span=self._end - self._start,
                most=self._most,
            )
            use_of(use, result, gpu)
            if first:
                _label(bars, gpu.id)

    def _legend(self, figure: Figure, height: float) -> None:
        handles: list[Line2D | Patch] = []
        if self._single:
            names = list(self._colours)
            handles += [Patch(color=self._colours[n], label=n) for n in names[:_LEGEND]]
            if len(names) > _LEGEND:
                handles.append(Patch(color="white", label=f"and {len(names) - _LEGEND} more"))
            handles += [
                Patch(color=BUSY, alpha=0.4, label="GPU utilisation"),
                Line2D([], [], color=MEMORY, linewidth=1.2, label="memory in use"),
            ]
            ends = {attempt.outcome for attempt in self._attempts()}
            if label := " or ".join(_ENDS[end] for end in _ENDS if end in ends):
                handles.append(Patch(fill=False, edgecolor=KILLED, hatch="////", label=label))
        else:
            handles += [
                Patch(color=BUSY, label="GPU utilisation, white is 0 %"),
                Patch(color=MEMORY, label="memory in use, white is 0 %"),
            ]
        handles.append(Line2D([], [], color=INK, linewidth=0.8, linestyle=":", label="all done"))
        fit = max(1, int(self._columns * self._width / _ENTRY))
        rows = -(-len(handles) // fit)
        figure.legend(
            handles=handles,
            loc="center",
            bbox_to_anchor=(0.5, height / 2),
            ncols=-(-len(handles) // rows),
            fontsize=7,
            frameon=False,
            labelcolor=INK,
            handlelength=1.2,
            columnspacing=1.2,
        )

    def _attempts(self) -> list[SimulatedAttempt]:
        return [attempt for result in self._results.values() for attempt in result.attempts]


def _lanes(result: Result) -> int:
    """Return the maximum number of jobs on one GPU at the same time."""
    return max(
        (
            lane + 1
            for gpu in result.gpus[:GPUS_DRAWN]
            for _, lane in lanes([a for a in result.attempts if gpu.id in a.gpus])
        ),
        default=1,
    )


def _label(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, fontsize=7.5, color=INK, rotation=0, ha="right", va="center", labelpad=8)


def _figures(result: Result) -> str:
    return (
        f"{seconds(result.makespan)}   GPU {result.gpu_utilisation:.0f} %   "
        f"memory {result.memory_utilisation:.0f} %"
    )
