"""The panels of one policy: jobs on a GPU, its utilisation, the queue, and many GPUs at once."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from partita_policies.types import GPU
from partita_research.cli.charts.colours import BUSY, FAINT, INK, KILLED, MEMORY, QUEUE, ink_on
from partita_research.cli.charts.series import lanes, means, steps
from partita_research.simulator import Result, SimulatedAttempt, SimulatedOutcome

__all__ = ["heat", "jobs_on", "plain", "queue", "use_of"]

_CHARACTER = 0.062
"""Width of a character of a bar's label in inches."""
_LABELLED_LANES = 10
"""Maximum number of lanes with bars high enough for a label."""
_COLUMNS = 400
"""Time intervals of the panel that shows many GPUs at once."""


def plain(axes: Axes) -> None:
    """Remove frames, and make the axes unobtrusive."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=INK, length=2, width=0.5, labelsize=7)


def jobs_on(
    axes: Axes,
    attempts: Sequence[SimulatedAttempt],
    colours: Mapping[str, str],
    *,
    inches: float,
    span: float,
    most: int,
) -> None:
    """Draw the jobs of one GPU as bars; concurrent jobs are in different lanes.

    Parameters
    ----------
    colours
        Colours by job.
    inches
        Width of the panel.
    span
        Length of the time axis in seconds.
    most
        Number of lanes; the same for all GPUs.
    """
    for attempt, lane in lanes(attempts):
        killed = attempt.outcome is not SimulatedOutcome.FINISHED
        colour = colours[attempt.job]
        width = attempt.end - attempt.start
        axes.add_patch(
            Rectangle(
                (attempt.start, lane + 0.06),
                width,
                0.88,
                facecolor=colour,
                edgecolor=KILLED if killed else "white",
                linewidth=0.9 if killed else 0.4,
                hatch="////" if killed else None,
                alpha=0.55 if killed else 1.0,
            )
        )
        fits = len(attempt.job) * _CHARACTER <= width / span * inches
        if fits and most <= _LABELLED_LANES:
            axes.text(
                attempt.start + width / 2,
                lane + 0.47,
                attempt.job,
                ha="center",
                va="center",
                fontsize=6,
                color=INK if killed else ink_on(colour),
                clip_on=True,
            )
    axes.set_ylim(max(most, 1), 0)
    axes.set_yticks([])
    axes.tick_params(labelbottom=False, bottom=False)
    axes.spines["bottom"].set_visible(False)


def use_of(axes: Axes, result: Result, gpu: GPU) -> None:
    """Draw the utilisation and the memory of one GPU."""
    busy, memory = steps(result.timeline.get(gpu.id, ()), gpu.memory, result.end)
    axes.fill_between(*busy, step="post", color=BUSY, alpha=0.35, linewidth=0)
    axes.step(*busy, where="post", color=BUSY, linewidth=0.7)
    axes.step(*memory, where="post", color=MEMORY, linewidth=1.1)
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    axes.grid(axis="y", color=FAINT, linewidth=0.3, alpha=0.5)


def queue(axes: Axes, result: Result, most: int) -> None:
    """Draw the number of waiting jobs."""
    waiting = [*result.waiting()]
    times = [result.start, *(time for time, _ in waiting), result.end]
    counts = [0, *(count for _, count in waiting), waiting[-1][1] if waiting else 0]
    axes.fill_between(times, counts, step="post", color=QUEUE, alpha=0.45, linewidth=0)
    axes.step(times, counts, where="post", color=QUEUE, linewidth=0.9)
    axes.set_ylim(0, max(most, 1) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.grid(axis="y", color=FAINT, linewidth=0.3, alpha=0.5)


def heat(axes: Axes, result: Result, *, busy: bool, end: float) -> None:
    """Draw the utilisation or the memory of all GPUs, one row each, in descending order."""
    rows = []
    for gpu in result.gpus:
        both = steps(result.timeline.get(gpu.id, ()), gpu.memory, result.end)
        times, values = both[0] if busy else both[1]
        rows.append(means(times, values, result.start, end, _COLUMNS))
    rows.sort(key=sum, reverse=True)
    axes.imshow(
        rows,
        aspect="auto",
        cmap=LinearSegmentedColormap.from_list("share", ["white", BUSY if busy else MEMORY]),
        vmin=0,
        vmax=100,
        extent=(result.start, end, len(rows), 0),
    )
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
