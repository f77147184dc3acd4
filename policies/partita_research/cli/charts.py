"""Pictures of simulations: jobs on each GPU, its use, and the queue; one block for each policy."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from partita.cli.number_format import seconds
from partita_policies.types import GPU
from partita_research.simulator import Reading, Result, SimulatedAttempt, SimulatedOutcome

__all__ = ["colours_of", "draw", "lanes", "means", "save", "steps"]

_INK, _BUSY, _MEMORY, _QUEUE, _KILLED = "#263238", "#00796b", "#5c6bc0", "#78909c", "#d50000"
_PALE = 0.7
"""Opacity of bars, so that their labels can be read."""
_GPUS_DRAWN = 8
"""Maximum number of GPUs that are drawn individually."""
_COLUMNS = {1: 1, 2: 2, 4: 2}
"""Blocks side by side, by number of policies; three for any other number."""
_WIDTHS = {1: 11.0, 2: 7.2, 3: 5.6}
"""Width of a block in inches, by the number of columns."""
_LEGEND = 16
"""Maximum number of applications in the legend."""
_CHARACTER = 0.062
"""Width of a character of a bar's label in inches."""
_LABELLED_LANES = 10
"""Maximum number of lanes with bars high enough for a label."""
_PARTS = 400
"""Intervals of time in the panels that show many GPUs at once."""
_DPI = 160
_DIGITS = 9
"""Decimals of positions, in parts of the figure."""
_UNITS = ((1, "seconds", 10_000), (3600, "hours", 100), (86400, "days", inf))
"""Units of the time axis: seconds, name, and the longest time in this unit."""

Steps = tuple[list[float], list[float]]
"""Times, and the value from each time on."""


def draw(results: Mapping[str, Result], title: str) -> Figure:
    """Draw simulations of the same jobs on the same GPUs under several policies.

    Parameters
    ----------
    results
        Results by policy; at least one.
    """
    return _Picture(results).draw(title)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file name's extension; equal figures give equal files.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    with mpl.rc_context({"svg.hashsalt": "partita"}):
        figure.savefig(path, metadata=metadata, facecolor="white")


def colours_of(applications: Iterable[str]) -> dict[str, str]:
    """Return the colour of each application; colours repeat if there are too many applications."""
    palette = mpl.colormaps["tab20"]
    return {
        name: to_hex(palette(n % palette.N)) for n, name in enumerate(sorted(set(applications)))
    }


def lanes(attempts: Sequence[SimulatedAttempt]) -> list[tuple[SimulatedAttempt, int]]:
    """Assign each attempt on a GPU to the lowest lane that is free while it runs."""
    until: list[float] = []
    placed = []
    for attempt in sorted(attempts, key=lambda a: (a.start, a.end, a.job)):
        lane = next((i for i, end in enumerate(until) if end <= attempt.start), len(until))
        until[lane : lane + 1] = [attempt.end]
        placed.append((attempt, lane))
    return placed


def steps(readings: Sequence[Reading], capacity: int, end: float) -> tuple[Steps, Steps]:
    """Return the utilisation and memory of one GPU up to the end, both in percent."""
    rows = [(r.time, 100 * r.busy, 100 * r.memory / capacity) for r in readings] or [(end, 0, 0)]
    times, busy, memory = (list(column) for column in zip(*rows, strict=True))
    if readings:
        times.append(end)
        busy.append(busy[-1])
        memory.append(memory[-1])
    return (times, busy), (times, memory)


def means(values: Steps, start: float, end: float, count: int) -> list[float]:
    """Return the mean of a step function in each of `count` equal parts of an interval."""
    if end <= start:
        return [0.0] * count
    times, levels = values
    edges = np.linspace(start, end, count + 1)
    corners = np.array([*times, max(end, times[-1])])
    area = np.concatenate([[0.0], np.cumsum(np.diff(corners) * np.array(levels))])
    found: list[float] = (np.diff(np.interp(edges, corners, area)) * count / (end - start)).tolist()
    return found


def _fix_layout(figure: Figure) -> None:
    """Lay out a figure, with positions rounded.

    Their last digits vary, because the solver's order follows addresses in memory. The ids in an
    SVG are made of all digits.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for block in figure.subfigs:
        block.bbox_relative.set_points(block.bbox_relative.get_points().round(_DIGITS))
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position().bounds, _DIGITS))


class _Picture:
    """The figure: all blocks have the same axes, so that they can be compared."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        every = list(results.values())
        self._results = results
        self._gpus = every[0].gpus
        self._single = len(self._gpus) <= _GPUS_DRAWN
        self._columns = _COLUMNS.get(len(every), 3)
        self._start = min(result.start for result in every)
        self._end = max(self._start + 1e-9, *(result.end for result in every))
        self._waiting = max((n for r in every for _, n in r.waiting()), default=0)
        self._lanes = max(
            (
                lane + 1
                for r in every
                for gpu in r.gpus[:_GPUS_DRAWN]
                for _, lane in lanes(_on(gpu, r))
            ),
            default=1,
        )
        self._names = {job.job: job.application or job.job for r in every for job in r.jobs}
        self._colours = colours_of(self._names.values())

    def draw(self, title: str) -> Figure:
        heights = [2.2, 2.2, 0.8]
        if self._single:
            bars = min(max(0.19 * self._lanes, 0.4), 2.2)
            heights = [bars, 0.5] * len(self._gpus) + [0.6]
        rows = -(-len(self._results) // self._columns)
        size = (self._columns * _WIDTHS[self._columns], rows * (sum(heights) + 1.1) + 0.8)
        figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
        blocks = figure.subfigures(rows, self._columns, squeeze=False)
        for block, (policy, result) in zip(blocks.flat, self._results.items(), strict=False):
            self._block(block, heights, policy, result)
        handles = self._handles()
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(len(handles), int(1.25 * size[0] / 1.6)),
            fontsize=7,
            frameon=False,
            labelcolor=_INK,
        )
        _fix_layout(figure)
        return figure

    def _block(
        self, block: SubFigure, heights: Sequence[float], policy: str, result: Result
    ) -> None:
        panels = list(
            block.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False).flat
        )
        if self._single:
            for index, gpu in enumerate(self._gpus):
                self._jobs(panels[2 * index], _on(gpu, result))
                _label(panels[2 * index], gpu.id)
                _use(panels[2 * index + 1], result, gpu)
        else:
            for axes, busy in ((panels[0], True), (panels[1], False)):
                _heat(axes, result, busy=busy)
                name = "how busy" if busy else "how full"
                _label(axes, f"{len(self._gpus):,}\nGPUs:\n{name}")
        self._queue(panels[-1], result)
        for axes in panels:
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(colors=_INK, length=2, width=0.5, labelsize=7)
            axes.set_xlim(self._start, self._end)
            axes.axvline(result.end, color=_INK, linewidth=0.8, linestyle=":")
        self._time_axis(panels[-1])
        figures = (
            f"{seconds(result.makespan)}   GPU {result.gpu_utilisation:.0f} %   "
            f"memory {result.memory_utilisation:.0f} %"
        )
        panels[0].set_title(policy, fontsize=10, fontweight="bold", loc="left", color=_INK)
        panels[0].set_title(figures, fontsize=8, loc="right", color=_INK)

    def _jobs(self, axes: Axes, attempts: Sequence[SimulatedAttempt]) -> None:
        """Draw the jobs of one GPU as bars; concurrent jobs are in different lanes."""
        inch = (self._end - self._start) / _WIDTHS[self._columns]
        for attempt, lane in lanes(attempts):
            killed = attempt.outcome not in (SimulatedOutcome.FINISHED, SimulatedOutcome.RUNNING)
            width = attempt.end - attempt.start
            axes.barh(
                lane + 0.5,
                width,
                height=0.88,
                left=attempt.start,
                color=(self._colours[self._names[attempt.job]], _PALE),
                edgecolor=_KILLED if killed else "white",
                linewidth=0.9 if killed else 0.4,
                hatch="////" if killed else None,
            )
            fits = len(attempt.job) * _CHARACTER * inch <= width
            if fits and self._lanes <= _LABELLED_LANES:
                middle = (attempt.start + width / 2, lane + 0.47)
                axes.text(*middle, attempt.job, ha="center", va="center", fontsize=6, color=_INK)
        axes.set_ylim(self._lanes, 0)
        axes.set_yticks([])

    def _queue(self, axes: Axes, result: Result) -> None:
        """Draw the number of waiting jobs."""
        waiting = [(result.start, 0), *result.waiting()]
        times, counts = zip(*waiting, (result.end, waiting[-1][1]), strict=True)
        axes.fill_between(times, counts, step="post", color=_QUEUE, alpha=0.6, linewidth=0)
        axes.set_ylim(0, max(self._waiting, 1) * 1.08)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        _label(axes, "jobs that\nwait")

    def _time_axis(self, axes: Axes) -> None:
        span = self._end - self._start
        unit, name = next((unit, name) for unit, name, most in _UNITS if span <= most * unit)
        ticks = MaxNLocator(6).tick_values(self._start / unit, self._end / unit)
        inside = [tick for tick in ticks if self._start <= tick * unit <= self._end]
        axes.set_xticks([tick * unit for tick in inside], [f"{tick:g}" for tick in inside])
        axes.set_xlabel(name, fontsize=7, color=_INK)

    def _handles(self) -> list[Line2D | Patch]:
        end = Line2D([], [], color=_INK, linewidth=0.8, linestyle=":", label="all done")
        if not self._single:
            busy = Patch(color=_BUSY, label="GPU utilisation, white is 0 %")
            return [busy, Patch(color=_MEMORY, label="memory in use, white is 0 %"), end]
        names = list(self._colours)
        handles: list[Line2D | Patch] = [
            Patch(color=(self._colours[name], _PALE), label=name) for name in names[:_LEGEND]
        ]
        if len(names) > _LEGEND:
            handles.append(Patch(color="white", label=f"and {len(names) - _LEGEND} more"))
        handles.append(Patch(color=_BUSY, alpha=0.4, label="GPU utilisation"))
        handles.append(Line2D([], [], color=_MEMORY, linewidth=1.2, label="memory in use"))
        ends = {attempt.outcome for r in self._results.values() for attempt in r.attempts}
        killed = {
            SimulatedOutcome.OUT_OF_MEMORY: "out of memory",
            SimulatedOutcome.RECLAIMED: "reclaimed",
        }
        if label := " or ".join(words for outcome, words in killed.items() if outcome in ends):
            handles.append(Patch(fill=False, edgecolor=_KILLED, hatch="////", label=label))
        return [*handles, end]


def _on(gpu: GPU, result: Result) -> list[SimulatedAttempt]:
    return [attempt for attempt in result.attempts if gpu.id in attempt.gpus]


def _use(axes: Axes, result: Result, gpu: GPU) -> None:
    """Draw the utilisation and the memory of one GPU."""
    busy, memory = steps(result.timeline.get(gpu.id, ()), gpu.memory, result.end)
    axes.fill_between(*busy, step="post", color=_BUSY, alpha=0.4, linewidth=0)
    axes.step(*memory, where="post", color=_MEMORY, linewidth=1.1)
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])


def _heat(axes: Axes, result: Result, *, busy: bool) -> None:
    """Draw the utilisation or the memory of all GPUs, one row each, in descending order."""
    rows = [
        means(
            steps(result.timeline.get(gpu.id, ()), gpu.memory, result.end)[not busy],
            result.start,
            result.end,
            _PARTS,
        )
        for gpu in result.gpus
    ]
    axes.imshow(
        sorted(rows, key=sum, reverse=True),
        aspect="auto",
        cmap=LinearSegmentedColormap.from_list("share", ["white", _BUSY if busy else _MEMORY]),
        vmin=0,
        vmax=100,
        extent=(result.start, result.end, len(rows), 0),
    )
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _label(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, fontsize=7.5, color=_INK, rotation=0, ha="right", va="center")
