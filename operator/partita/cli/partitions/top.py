"""`partita top`: GPUs, slices and queues, live."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import complete_partitions
from partita.cli.options import kubeconfig_option, output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from partita.cli.partitions.partition_view import Colours
    from partita.console.view import PartitionView

__all__ = ["command"]


@click.command("top", short_help="Show GPUs, slices and queues, live.")
@click.argument("partitions", nargs=-1, shell_complete=complete_partitions)
@kubeconfig_option
@click.option("--once", is_flag=True, help="Show it once and end; also where nobody watches.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@output_option
def command(
    *,
    partitions: tuple[str, ...],
    kubeconfig: str | None,
    once: bool,
    interval: float,
    output: str,
) -> None:
    """Show all PARTITIONS, or those named, until Ctrl-C.

    Each GPU is a bar of its allocatable memory, divided into the slices of its jobs. The line below
    shows how much of its slice each job really uses. On the right is what is allocated of how much,
    and how busy the GPU is. Below come the jobs that wait, in the queue's order, with their reason.

    \b
    Examples:
      partita top
      partita top shared --once
      partita top --output json | jq '.[].queue | length'
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    repeat = not once and output == "text" and terminal.interactive()
    try:
        run_until_stopped(_show(partitions, kubeconfig, interval if repeat else None, output))
    except Stopped:
        return


async def _show(
    names: tuple[str, ...], kubeconfig: str | None, interval: float | None, output: str
) -> None:
    import asyncio

    from partita.cli.connection import open_cluster, read_state
    from partita.cli.partitions.partition_view import Colours
    from partita.console.view import as_json, partitions_view

    colours = Colours()

    async with open_cluster(kubeconfig) as kube:

        async def look() -> "list[PartitionView]":
            found = partitions_view(await read_state(kube), datetime.now(UTC))
            unknown = sorted(set(names) - {p.name for p in found})
            if unknown:
                there = ", ".join(p.name for p in found) or "none"
                raise terminal.UserError(
                    f"there is no GPUPartition {unknown[0]} (there is: {there}): name one of these"
                )
            return [p for p in found if not names or p.name in names]

        if interval is None:
            seen = await look()
            if output == "json":
                terminal.dump(as_json(seen))
            else:
                terminal.display(_picture(seen, colours, height=None))
            return
        with terminal.live(whole_screen=True) as live:
            while True:
                height = live.console.size.height
                live.update(_picture(await look(), colours, height=height), refresh=True)
                await asyncio.sleep(interval)


def _picture(
    partitions: "list[PartitionView]", colours: "Colours", *, height: int | None
) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from partita.cli.partitions.partition_view import partition_view

    if not partitions:
        return Text("There is no GPUPartition: apply one, such as examples/10-partition.yaml.")
    bars = sum(2 + 2 * len(p.gpus) + bool(p.trouble) for p in partitions)
    rows = 1000 if height is None else max(3, (height - bars) // len(partitions) - 2)
    parts: list[RenderableType] = []
    for partition in partitions:
        if parts:
            parts.append(Text())
        parts.append(partition_view(partition, colours, queue_rows=rows))
    return Group(*parts)
