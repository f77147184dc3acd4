"""Recommendations as tables and as data. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from partita.cli.number_format import gib, times
from partita_policies.co_runs import PRIOR_RUNS
from partita_policies.interference import SM_OF_BUSY, SM_SATURATION, TYPICAL_CACHE
from partita_research.advise import (
    INSENSITIVE,
    MOST_COLOCATED,
    SENSITIVE,
    WORTHWHILE,
    Advice,
    Copies,
    Group,
    Recommendation,
    SeenTogether,
    Strain,
)

__all__ = ["AdviseReport", "assumptions", "report", "report_data"]

_SAID = {
    Recommendation.TOGETHER: ("together, by MPS", "green"),
    Recommendation.BY_TURNS: ("by time slicing, not MPS", "yellow"),
    Recommendation.NO_GAIN: ("apart: no gain", "yellow"),
    Recommendation.APART: ("apart: slower", "red"),
    Recommendation.UNKNOWN: ("unknown", "magenta"),
    Recommendation.NO_ROOM: ("do not fit", "dim"),
}
_STRAINS = {
    Strain.NOTHING: "-",
    Strain.SM: "SMs",
    Strain.PCIE: "PCIe",
    Strain.CACHE: "cache",
    Strain.MEMORY: "memory",
}


class AdvisedApplication(TypedDict):
    """An application."""

    name: str
    memory: int
    """Bytes."""
    measuredOn: str
    """The GPU product of its profile; empty if it is not known."""
    coreMeasured: bool
    """Whether its SM occupancy was measured."""


class AdvisedGPU(TypedDict):
    """The recommendations for a GPU."""

    product: str
    memory: int
    """Bytes that can be allocated."""
    pcieBandwidth: int
    """Bytes per second; 0 if it is not known."""
    applications: list[AdvisedApplication]
    copies: tuple[Copies, ...]
    seenTogether: tuple[SeenTogether, ...]
    pairs: tuple[Group, ...]
    """All pairs, the best first."""
    colocations: tuple[Group, ...]
    """For each application, the best group with it."""


class AdviseReport(TypedDict):
    """The recommendations."""

    gpus: list[AdvisedGPU]
    mostColocated: int
    """Largest group that was tried."""
    assumptions: list[str]


def report(advice: Advice, *, rows: int) -> RenderableType:
    """Draw the recommendations for one GPU.

    Parameters
    ----------
    rows
        Maximum number of rows of a table.
    """
    gpu = advice.gpu
    parts: list[RenderableType] = [
        Text(f"{gpu.product}, {gib(gpu.memory)} GiB allocatable", style="bold"),
        Text(),
        _copies(advice),
        Text(),
        _groups(
            "Pairs", [p for p in advice.pairs if p.verdict is not Recommendation.NO_ROOM], rows
        ),
    ]
    apart = sum(pair.verdict is Recommendation.NO_ROOM for pair in advice.pairs)
    if apart:
        parts.append(Text(f"Too large to share this GPU: {apart} more pairs.", style="dim"))
    if any(len(group.applications) > 2 for group in advice.colocations):
        parts += [Text(), _groups("Best co-location", advice.colocations, rows)]
    if advice.seen:
        parts += [Text(), _seen(advice)]
    return Lines(*parts)


def assumptions(advices: Sequence[Advice]) -> list[str]:
    """Return the assumptions and the limits of the recommendations."""
    lines = [
        (
            "Speed-up: work done in a second on one GPU, where one job after the other does 1; "
            f"from {WORTHWHILE:g} on, sharing is recommended. Slowdown: run time against alone."
        ),
        (
            f"Assumed: a cache sensitivity of {TYPICAL_CACHE:g} for all, since profiles do not "
            f"tell it; the range goes from {SENSITIVE:g} to {INSENSITIVE:g}, the two kernels of "
            "the table that the model is fitted to, and * marks what does not hold all over it."
        ),
        f"Assumed: SMs are as fast as they get from an occupancy of {SM_SATURATION:.0%} on.",
    ]
    if any(advice.seen for advice in advices):
        lines.append(
            "Seen together: the slowdown of the first beside one job of the second, as predicted "
            "from the profiles and as runs on the cluster had it. The other tables rest on both: "
            f"{PRIOR_RUNS:g} runs count as much as the prediction."
        )
    subjects = {one.name: one for advice in advices for one in advice.subjects}
    blind = [name for name, one in subjects.items() if not one.measured]
    if blind:
        lines.append(
            f"Not known: the SM occupancy of {', '.join(blind)}, so {SM_OF_BUSY:.0%} of the SMs "
            "are assumed to work while a kernel runs, and the range goes from all to none. "
            "`unknown` means that this decides: measure it on a GPU that has GPM, or try."
        )
    unlike = {
        f"{one.name} (on {one.profile.product})"
        for advice in advices
        for one in advice.subjects
        if one.profile.product and one.profile.product != advice.gpu.product
    }
    if unlike:
        lines.append(
            "Assumed: what was measured on another product takes the same shares here: "
            f"{', '.join(sorted(unlike))}."
        )
    if any(not advice.gpu.pcie_bandwidth for advice in advices):
        lines.append("Not known: the PCIe bandwidth; that link is taken never to be full.")
    return lines


def _copies(advice: Advice) -> Table:
    table = _table("Application", "Memory", "At once", "Speed-up", "Slowdown", "Fit", "Held by")
    copies = {one.name: one for one in advice.copies}
    for subject in advice.subjects:
        one = copies.get(subject.name)
        name = subject.name if subject.measured else f"{subject.name} ?"
        cells = ["-", "-", "-", "0", "memory"]
        if one is not None:
            speed = times(one.speedup), times(one.slowdown)
            cells = [str(one.at_once), *speed, str(one.fitting), _STRAINS[one.held_by]]
        table.add_row(name, f"{gib(subject.memory)} GiB", *cells)
    return table


def _groups(title: str, groups: Sequence[Group], rows: int) -> RenderableType:
    table = _table(title, "Speed-up", "Range", "Slowdowns", "Sliced", "Strains", "Verdict")
    table.columns[-1].justify = "left"
    half = rows // 2
    shown = groups if len(groups) <= rows else [*groups[: rows - half], *groups[-half:]]
    for group in shown:
        said, style = _SAID[group.verdict]
        figures = (group.speedup, group.low, group.high, group.time_slicing)
        speedup, low, high, sliced = (times(figure or 1.0) for figure in figures)
        table.add_row(
            _names(group),
            speedup,
            f"{low}-{high}",
            " ".join(map(times, _mean_slowdowns(group))),
            sliced,
            _STRAINS[group.strain],
            Text(said + ("" if group.certain else " *"), style=style),
        )
    if not groups:
        return Text(f"{title}: none fits.", style="dim")
    if len(shown) == len(groups):
        return table
    left = len(groups) - len(shown)
    return Lines(table, Text(f"{left} between them not shown: see --rows.", style="dim"))


def _seen(advice: Advice) -> Table:
    table = _table("Seen together", "Predicted", "Observed", "Runs")
    for one in advice.seen:
        slower = times(one.predicted), times(one.observed)
        table.add_row(f"{one.name} beside {one.beside}", *slower, f"{one.samples:.1f}")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, style="bold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _names(group: Group) -> str:
    counts = Counter(group.applications)
    return " + ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())


def _mean_slowdowns(group: Group) -> Iterator[float]:
    """Yield the mean slowdown of each application, in the order of the names."""
    pairs = [*zip(group.applications, group.slowdowns or (), strict=True)]
    for name, count in Counter(group.applications).items():
        yield sum(much for one, much in pairs if one == name) / count


def report_data(advices: Sequence[Advice]) -> AdviseReport:
    """Return the recommendations as data; memory in bytes."""
    return {
        "gpus": [_gpu_data(advice) for advice in advices],
        "mostColocated": MOST_COLOCATED,
        "assumptions": assumptions(advices),
    }


def _gpu_data(advice: Advice) -> AdvisedGPU:
    gpu = advice.gpu
    return {
        "product": gpu.product,
        "memory": gpu.memory,
        "pcieBandwidth": gpu.pcie_bandwidth,
        "applications": [
            {"name": one.name, "memory": one.memory, "measuredOn": one.profile.product,
             "coreMeasured": one.measured}
            for one in advice.subjects
        ],
        "copies": advice.copies,
        "seenTogether": advice.seen,
        "pairs": advice.pairs,
        "colocations": advice.colocations,
    }  # fmt: skip
