"""Draws a partition: a bar of slices for each GPU, and the queue with the reasons for waiting."""

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from partita.claims.workload_view import WorkloadView
from partita.cli.number_format import duration, gib
from partita.console.view import GPUView, PartitionView
from partita.models import quantities

__all__ = ["Colours", "partition_view"]

_PALETTE = (
    "#8fb8de",
    "#f2b880",
    "#a3cfa0",
    "#e3a6b5",
    "#c3b1e1",
    "#e8d28a",
    "#8fcfc9",
    "#d7b49e",
    "#b5c98f",
    "#b9bfd4",
)
"""Colours of jobs: light enough for black text, and distinct on light and dark screens."""
_STATES = {"Ready": "green", "Starting": "cyan"} | dict.fromkeys(
    ("Drained", "Draining", "Mismatched", "Unschedulable"), "yellow"
)
_WHOLE_NAMES_FROM = 100
"""Minimum number of columns for names with namespaces in the queue."""


class Colours:
    """Assigns each job a colour that does not change; colours repeat if there are more jobs."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, uid: str) -> str:
        """Return the job's colour."""
        return self._of.setdefault(uid, _PALETTE[len(self._of) % len(_PALETTE)])


def partition_view(
    partition: PartitionView, colours: Colours, *, queue_rows: int, wrap: bool = False
) -> RenderableType:
    """Draw a partition.

    Parameters
    ----------
    queue_rows
        Maximum rows of the queue; a last line contains the number of the other jobs.
    wrap
        Print the complete reason of each waiting job, on several lines if needed.
    """
    parts: list[RenderableType] = [_head(partition)]
    if partition.trouble:
        parts.append(Text(f"! {partition.trouble}", style="yellow", overflow="ellipsis"))
    if partition.gpus:
        parts.append(_Bars(partition.gpus, colours))
    if partition.queue:
        parts.append(_Queue(partition.queue, queue_rows, wrap=wrap))
    if partition.unseen:
        parts.append(Text(f"    and {partition.unseen} that wait, not shown", style="dim"))
    return Group(*parts)


def _head(partition: PartitionView) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(partition.name, style="bold")
    if not partition.exists:
        return head.append("  there is no such GPUPartition", style="yellow")
    facts = [
        partition.mode + _limits(partition),
        f"policy {partition.policy} ({partition.objective})",
        f"{partition.ready} of {partition.wanted} GPUs ready",
        f"{partition.running} running",
        f"{partition.waiting} waiting",
    ]
    return head.append("  " + " · ".join(facts), style="dim")


def _limits(partition: PartitionView) -> str:
    """Return on how many GPUs the driver limits the memory of jobs; empty if on none."""
    limited = sum(gpu.enforcement == "Driver" for gpu in partition.gpus)
    where = "" if limited == len(partition.gpus) else f" on {limited} of {len(partition.gpus)} GPUs"
    return f" with limits of the driver{where}" if limited else ""


class _Bars:
    """Two lines for each GPU: the memory allocated to each job, and below it the used memory."""

    def __init__(self, gpus: Sequence[GPUView], colours: Colours) -> None:
        self._gpus = gpus
        self._colours = colours

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(len(gpu.name) for gpu in self._gpus)
        amounts = max(len(_amount(gpu)) for gpu in self._gpus)
        width = max(10, options.max_width - names - amounts - 9)
        plain = console.color_system is None
        for gpu in self._gpus:
            if gpu.state == "Ready" or gpu.slices:
                allocated, used = _bar(gpu, width, self._colours, plain=plain)
                busy = "" if gpu.utilization is None else f"{gpu.utilization:3} %"
            else:
                said = f"{gpu.state.lower()}: {gpu.message}" if gpu.message else gpu.state.lower()
                allocated = Text(said, style=_STATES.get(gpu.state, "red"))
                allocated.truncate(width, overflow="ellipsis")
                allocated.pad_right(max(0, width - len(allocated)))
                used, busy = Text(" " * width), "     "
            style = "bold" if gpu.state == "Ready" else _STATES.get(gpu.state, "red")
            line = Text(gpu.name.ljust(names), style=style, no_wrap=True)
            yield Text.assemble(
                line, "  ", allocated, "  ", (_amount(gpu).rjust(amounts), ""), (busy, "dim")
            )
            yield Text.assemble((" " * (names + 2), ""), used, no_wrap=True)
            if gpu.borrowed:
                said = f"memory above guarantees: {quantities.gib(gpu.borrowed)}"
                yield Text(" " * (names + 2) + said, style="dim", no_wrap=True)
            if idle := [piece for piece in gpu.slices if piece.idle is not None]:
                said = ", ".join(f"{p.name} for {duration(p.idle or 0)}" for p in idle)
                line = Text(" " * (names + 2) + f"idle: {said}", style="yellow", no_wrap=True)
                line.truncate(options.max_width, overflow="ellipsis")
                yield line
            if gpu.unknown:
                said = f"unknown processes: {gpu.unknown}, {quantities.gib(gpu.unknown_memory)}"
                yield Text(" " * (names + 2) + said, style="red", no_wrap=True)


def _amount(gpu: GPUView) -> str:
    return f"{gib(gpu.allocated)}/{gib(gpu.allocatable)} GiB " if gpu.allocatable else ""


def _bar(gpu: GPUView, width: int, colours: Colours, *, plain: bool) -> tuple[Text, Text]:
    allocated, used = Text(no_wrap=True), Text(no_wrap=True)
    for piece, cells in zip(gpu.slices, _cells(gpu, width), strict=True):
        service = " (service)" if piece.lasting else ""
        name = f"{'|' if plain else ' '}{piece.name}{service}"
        label = name[:cells] if len(name) <= cells else f"{name[: max(0, cells - 1)]}…"[:cells]
        allocated.append(label.ljust(cells), style=f"black on {colours.of(piece.uid)}")
        part = (piece.used or 0) / piece.memory if piece.memory else 0
        filled = min(cells, round(cells * part))
        used.append("▀" * filled, style=colours.of(piece.uid))
        used.append(" " * (cells - filled))
    if gpu.unseen:
        edge = round(width * gpu.allocated / max(gpu.allocatable, gpu.allocated, 1))
        cells = max(0, edge - len(allocated))
        allocated.append(f" {gpu.unseen} not shown"[:cells].ljust(cells), style="reverse dim")
        used.append(" " * cells)
    rest = width - len(allocated)
    allocated.append(("|" if plain and rest and gpu.slices else "").ljust(rest, "·"), style="dim")
    used.append(" " * rest)
    return allocated, used


def _cells(gpu: GPUView, width: int) -> list[int]:
    """Divide the width in proportion to memory; rounding never makes the bar too long."""
    total, edges, at = max(gpu.allocatable, gpu.allocated, 1), [0], 0
    for piece in gpu.slices:
        at += piece.memory
        edges.append(round(width * at / total))
    return [after - before for before, after in pairwise(edges)]


class _Queue:
    """One line for each waiting job or workload: its position, its request, and why it waits."""

    def __init__(self, queue: Sequence[WorkloadView], rows: int, *, wrap: bool) -> None:
        self._queue = queue
        self._rows = rows
        self._wrap = wrap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WHOLE_NAMES_FROM
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=True)
        table.add_column(justify="right", style="dim", no_wrap=True, min_width=2)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=options.max_width // 3)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(
            ratio=1, no_wrap=not self._wrap, overflow="fold" if self._wrap else "ellipsis"
        )
        shown = self._queue[: self._rows]
        for job in shown:
            place = "" if job.position is None else str(job.position)
            name = job.key if wide else job.name
            name += f" of {job.pod_of}" if wide and job.pod_of else ""
            why = Text(job.reason or job.phase, style="dim" if job.held_back else "yellow")
            if job.message:
                why.append(f"  {job.message}", style="dim")
            table.add_row(place, Text(name, style="dim" if job.held_back else ""), job.asks, why)
        yield table
        if len(self._queue) > len(shown):
            yield Text(f"    and {len(self._queue) - len(shown)} more", style="dim")
