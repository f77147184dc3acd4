"""`partita when`: when the jobs and Pods in a file would start, and what would make it sooner."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.console.expected_start import PartitionAccuracy, PlannedStart
    from partita.models import EstimatedStart

__all__ = ["command", "show_starts"]


@click.command("when", short_help="Show when the jobs and Pods in a file would start.")
@click.argument(
    "file",
    required=False,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "--accuracy",
    is_flag=True,
    help="Show how often the intervals in the statuses of jobs held, for each partition.",
)
@namespace_option
@cluster_options
@output_option("partita.console.expected_start:When")
def command(
    *, file: Path | None, accuracy: bool, namespace: str | None, cluster: Cluster, output: str
) -> None:
    """Show when the jobs and Pods in FILE would start if they were applied now.

    FILE is YAML with a SharedGPUJob, or with a Pod or a controller of Pods and its claims. - reads
    stdin. Each is taken by itself. The interval holds with a probability of 90 % if the run times
    of ApplicationProfiles and of `expectedDuration` are right and nobody else arrives first. The
    job or Pod with whose end it starts in most of the simulated futures is named.

    Changes with which it would start noticeably sooner are tried in the same futures: less GPU
    memory, fewer threads, another partition, a higher priority. Nothing is written.

    \b
    Examples:
      partita when train.yaml
      partita when train.yaml -o json | jq '.[].sooner[0].change'
      partita when --accuracy
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    if accuracy == (file is not None):
        raise click.UsageError("write a FILE, or --accuracy")
    if file is None:
        _show_accuracy(run_until_stopped(_accuracy(cluster)), output)
        return
    with click.open_file(str(file), "rb") as opened:
        content = opened.read()
    show_starts(str(file), content, namespace, cluster, output)


def show_starts(
    name: str, content: bytes, namespace: str | None, cluster: Cluster, output: str = "table"
) -> None:
    """Print when the jobs and Pods in a file would start."""
    from partita.cli.run_until_stopped import run_until_stopped

    found = run_until_stopped(_planned(name, content, namespace, cluster))
    if output != "table":
        terminal.dump(found, output)
        return
    for one in found:
        after = f", in most cases when {one.after} ends" if one.after else ""
        terminal.data(
            f"{one.kind}/{one.name} in partition {one.partition} {_said(one.start)}{after}"
        )
        for sooner in one.sooner:
            terminal.data(f"  {_said(sooner.start)} with {sooner.change}")
        for change in one.unreached:
            terminal.data(f"  its start was not reached in the simulated time with {change}")


async def _planned(
    name: str, content: bytes, namespace: str | None, cluster: Cluster
) -> "list[PlannedStart]":
    from dataclasses import replace

    from partita.cli.cluster_state import read_visible, state_of
    from partita.cli.connection import open_cluster
    from partita.cli.explain.planned import requests_in
    from partita.console.expected_start import StartPlanner
    from partita.kube.connect import current_namespace

    here = namespace or current_namespace(*cluster)
    async with open_cluster(*cluster) as kube:
        lists, missing = await read_visible(kube, here)
    if missing:
        raise terminal.UserError(
            f"the queue cannot be simulated: you may not list {', '.join(missing)}; submit it, and "
            "`partita explain` shows when it is expected to start"
        )
    state = state_of(lists)
    planner = StartPlanner(state, datetime.now(UTC))
    return [
        await planner.plan(item.kind, item.name, replace(asked, namespace=item.namespace or here))
        for item, asked in requests_in(name, content, state)
    ]


def _said(start: "EstimatedStart") -> str:
    from partita.cli.number_format import starts_in

    if start.earliest is None or start.as_of is None:
        return f"starts at a time of which nothing can be said: {start.reason}"
    when = f"starts {starts_in(start.earliest, start.latest, start.as_of)}"
    return f"{when}: {start.reason}" if start.latest is None else when


async def _accuracy(cluster: Cluster) -> "list[PartitionAccuracy]":
    from partita.cli.connection import open_cluster
    from partita.console.expected_start import PartitionAccuracy
    from partita.kube.client import PARTITIONS
    from partita.models import GPUPartition
    from partita.models.partition_status import EstimatedStarts

    async with open_cluster(*cluster) as kube:
        partitions = [GPUPartition.parse(body) for body in (await kube.list(PARTITIONS))[0]]
    found = []
    for one in partitions:
        its = one.status.estimated_starts or EstimatedStarts()
        numbers = (its.started, its.held, its.median_width, its.median_error)
        found.append(PartitionAccuracy(one.metadata.name, *numbers))
    return found


def _show_accuracy(found: "list[PartitionAccuracy]", output: str) -> None:
    from partita.cli.number_format import duration, percent

    if output != "table":
        terminal.dump(found, output)
        return
    rows = [["PARTITION", "STARTS", "HELD", "WIDTH", "ERROR"]]
    for one in found:
        held = percent(one.held / one.started) if one.started else ""
        times = [duration(time) for time in (one.median_width, one.median_error) if one.started]
        rows.append([one.partition, str(one.started), held, *(times or ["", ""])])
    terminal.columns(rows)
