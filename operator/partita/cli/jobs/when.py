"""`partita when`: when the jobs and Pods in a file would start, and what would make it sooner."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.console.expected_start import ExpectedStart, PlannedStart, When

__all__ = ["command"]


@click.command("when", short_help="Show when the jobs and Pods in a file would start.")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@namespace_option
@cluster_options
@output_option("partita.console.expected_start:When")
def command(*, file: Path, namespace: str | None, cluster: Cluster, output: str) -> None:
    """Show when the jobs and Pods in FILE would start if they were applied now.

    FILE is YAML with a SharedGPUJob, or with a Pod or a controller of Pods and its claims. - reads
    stdin. Each is taken by itself. The interval holds with a probability of 90 % if the run times
    of ApplicationProfiles and of `expectedDuration` are right and nobody else arrives first.

    Changes with which it would start noticeably sooner are tried in the same futures: less GPU
    memory, fewer threads, another partition, a higher priority. Nothing is written.

    \b
    Examples:
      partita when train.yaml
      partita when train.yaml -o json | jq '.[].sooner[0].change'
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    terminal.quiet_logs()
    found = run_until_stopped(_planned(file, namespace, cluster))
    if output == "table":
        for one in found:
            _show(one)
    else:
        terminal.dump(found, output)


async def _planned(file: Path, namespace: str | None, cluster: Cluster) -> "When":
    from dataclasses import replace

    from partita.cli.cluster_state import read_visible, state_of
    from partita.cli.connection import open_cluster
    from partita.cli.explain.planned import requests_in
    from partita.console.expected_start import PlannedStart, expected_start, sooner_starts
    from partita.kube.connect import current_namespace

    with click.open_file(str(file), "rb") as opened:
        content = opened.read()
    here = namespace or current_namespace(*cluster)
    async with open_cluster(*cluster) as kube:
        lists, missing = await read_visible(kube, here)
    if missing:
        raise terminal.UserError(
            f"the queue cannot be simulated: you may not list {', '.join(missing)}; submit it, and "
            "`partita explain` shows when it is expected to start"
        )
    state, now = state_of(lists), datetime.now(UTC)
    found: When = []
    for item, asked in requests_in(str(file), content, state):
        request = replace(asked, namespace=item.namespace or here)
        start = await expected_start(request, state, now)
        sooner = await sooner_starts(request, start, state, now)
        where = (item.kind, request.namespace, item.name, request.partition)
        found.append(PlannedStart(*where, start, sooner))
    return found


def _show(one: "PlannedStart") -> None:
    terminal.data(f"{one.kind}/{one.name} in partition {one.partition} {_said(one.start)}")
    for sooner in one.sooner:
        terminal.data(f"  {_said(sooner.start)} with {sooner.change}")


def _said(start: "ExpectedStart") -> str:
    from partita.cli.number_format import duration

    if start.earliest is None or start.latest is None:
        return f"starts at a time of which nothing can be said: {start.reason}"
    if start.latest == 0:
        return "starts at once"
    return f"starts in {duration(start.earliest)} to {duration(start.latest)}"
