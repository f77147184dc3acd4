"""`partita top`: GPUs, slices and queues, live."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.completions import complete_names
from partita.cli.options import Cluster, cluster_options, output_option
from partita.garbage_collection import collect_often

if TYPE_CHECKING:
    from rich.console import RenderableType

    from partita.cli.partitions.partition_view import Colours
    from partita.console.view import PartitionView

__all__ = ["command"]


@click.command("top", short_help="Show GPUs, slices and queues, live.")
@click.argument("partitions", nargs=-1, shell_complete=complete_names("PARTITIONS"))
@cluster_options
@click.option("--once", is_flag=True, help="Print once and end. A pipe or file always gets this.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates.",
)
@output_option("partita.console.view:Partitions")
def command(
    *,
    partitions: tuple[str, ...],
    cluster: Cluster,
    once: bool,
    interval: float,
    output: str,
) -> None:
    """Show all PARTITIONS, or those named, until Ctrl-C.

    Each GPU is a bar of its allocatable memory, divided into the slices of its jobs and workloads.
    The line below the bar shows how much of its slice each one uses. On the right are the allocated
    and the allocatable memory and the GPU's utilization in the last minute. What is used may have
    been measured a minute ago; the metrics of the agents are current. A further line names those
    whose kernels have not run for a minute or more. Below the GPUs are the waiting jobs and
    workloads, in the order of the queue, with the reason why each one waits.

    \b
    Examples:
      partita top
      partita top shared --once
      partita top -o json | jq '.[].queue | length'
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    repeat = not once and output == "table" and terminal.interactive()
    if repeat:
        collect_often()
    try:
        run_until_stopped(_show(partitions, cluster, interval if repeat else None, output))
    except Stopped:
        if not repeat:
            raise


async def _show(
    names: tuple[str, ...], cluster: Cluster, interval: float | None, output: str
) -> None:
    import asyncio

    from rich.console import Group
    from rich.text import Text

    from partita.cli.cluster_state import read_visible, state_of
    from partita.cli.connection import open_cluster
    from partita.cli.partitions.partition_view import Colours
    from partita.console.view import partitions_view
    from partita.kube.connect import current_namespace
    from partita.kube.operator_lease import check_operator

    colours, namespace = Colours(), current_namespace(*cluster)

    async with open_cluster(*cluster) as kube:

        async def read() -> "tuple[list[PartitionView], list[str]]":
            lists, missing = await read_visible(kube, namespace)
            found = partitions_view(state_of(lists), datetime.now(UTC))
            unknown = sorted(set(names) - {p.name for p in found})
            if unknown:
                there = ", ".join(p.name for p in found) or "none"
                raise terminal.UserError(
                    f"there is no GPUPartition {unknown[0]} (there is: {there}): name one of these"
                )
            chosen = [p for p in found if not names or p.name in names]
            left_out = f"Not all is shown: you may not list {', '.join(missing)}."
            notes = [await check_operator(kube), left_out if missing else ""]
            return chosen, list(filter(None, notes))

        if interval is None:
            partitions, notes = await read()
            if output == "table":
                terminal.display(_picture(partitions, colours, height=None))
            else:
                terminal.dump(partitions, output)
            for note in notes:
                terminal.warn(note)
            return
        with terminal.live(whole_screen=True) as live:
            while True:
                height = live.console.size.height
                partitions, notes = await read()
                picture = _picture(partitions, colours, height=height)
                picture = Group(*(Text(note, style="red") for note in notes), picture)
                live.update(picture, refresh=True)
                await asyncio.sleep(interval)


def _picture(
    partitions: "list[PartitionView]", colours: "Colours", *, height: int | None
) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from partita.cli.partitions.partition_view import partition_view

    if not partitions:
        return Text("There is no GPUPartition. Apply one, such as examples/10-partition.yaml.")
    bars = sum(2 + 2 * len(p.gpus) + bool(p.trouble) for p in partitions)
    rows = 1000 if height is None else max(3, (height - bars) // len(partitions) - 2)
    parts: list[RenderableType] = []
    for partition in partitions:
        if parts:
            parts.append(Text())
        parts.append(partition_view(partition, colours, queue_rows=rows))
    return Group(*parts)
