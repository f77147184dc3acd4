"""`partita usage`: allocated and used GPU time and GPU memory, for chargeback."""

import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, ReadValue, cluster_options, output_option

if TYPE_CHECKING:
    from partita.accounting.daily_usage import Amounts

__all__ = ["command"]

_HOUR = 3600


def _day(text: str) -> date:
    """Read a day in UTC: a date, or a number of days before today."""
    if days := re.fullmatch(r"([0-9]{1,4})d", text):
        return datetime.now(UTC).date() - timedelta(days=int(days[1]))
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day: write one such as 30d or 2026-11-01") from None


_DAY = ReadValue("day", _day)


@click.command("usage", short_help="Show GPU time and memory by namespace, for chargeback.")
@click.option(
    "--since",
    type=_DAY,
    default="30d",
    show_default=True,
    metavar="DAY",
    help="First day: a date, or a number of days before today.",
)
@click.option(
    "--until",
    type=_DAY,
    default="0d",
    metavar="DAY",
    help="Last day, in the same form. By default today.",
)
@click.option(
    "--by",
    type=click.Choice(["namespace", "application", "partition"]),
    multiple=True,
    default=["namespace"],
    show_default=True,
    help="What a row is for. Repeat it for rows of several, such as namespace and application.",
)
@cluster_options
@output_option("partita.accounting.daily_usage:UsageReport", "csv")
def command(
    *, since: date, until: date, by: tuple[str, ...], cluster: Cluster, output: str
) -> None:
    """Show how much GPU time and GPU memory was allocated and used.

    A GPU-hour is allocated if a whole GPU is allocated for an hour, or half of its memory for two
    hours. A GPU-hour is used if kernels keep a GPU busy for an hour. A GiB-hour is 1 GiB of GPU
    memory for an hour, allocated or in use. Jobs and workloads with claims count alike, as do
    attempts that failed.

    The operator records usage by day (UTC) for 90 days, in the ConfigMaps partita-usage-<day> of
    its namespace, which PARTITA_NAMESPACE names if it is not partita-system. In csv, json and yaml,
    amounts are in GPU-seconds and GiB-seconds.

    \b
    Examples:
      partita usage
      partita usage --since 2026-10-01 --until 2026-10-31 --by namespace --by application
      partita usage --since 7d --by partition -o csv > usage.csv
    """  # noqa: D301
    from partita.accounting.daily_usage import Amounts, UsageReport, UsageRow, usage_csv
    from partita.cli.run_until_stopped import run_until_stopped

    if since > until:
        raise click.UsageError(
            f"--since {since} is after --until {until}: write the earlier day as --since"
        )
    names = tuple(dict.fromkeys(by))
    rows = run_until_stopped(_read(cluster, names, since, until))
    total = sum((amounts for _, amounts in rows), Amounts())
    if output in {"json", "yaml"}:
        usage = [UsageRow(amounts=its, **dict(zip(names, key, strict=True))) for key, its in rows]
        terminal.dump(UsageReport(since, until, usage, total), output)
    elif output == "csv":
        terminal.raw(usage_csv(names, rows).encode())
    elif rows:
        header = [
            *map(str.upper, names),
            "GPU-HOURS ALLOCATED",
            "USED",
            "GIB-HOURS ALLOCATED",
            "USED",
        ]
        totals = (("total", *([" "] * (len(names) - 1))), total)
        terminal.columns([header, *([*key, *_hours(its)] for key, its in (*rows, totals))])
    else:
        terminal.say(f"No usage is recorded from {since} to {until}.")


async def _read(
    cluster: Cluster, by: tuple[str, ...], since: date, until: date
) -> "list[tuple[tuple[str, ...], Amounts]]":
    """Return what is recorded, the most allocated GPU time first."""
    from partita.accounting.daily_usage import Amounts, DailyUsage
    from partita.accounting.usage_recorder import usage_config_maps
    from partita.cli.connection import open_cluster
    from partita.kube.operator_lease import check_operator, operator_namespace

    namespace = operator_namespace()
    sums: defaultdict[tuple[str, ...], Amounts] = defaultdict(Amounts)
    async with open_cluster(*cluster) as kube:
        for item in await usage_config_maps(kube, namespace):
            try:
                record = DailyUsage.parse(item)
            except ValueError as error:
                name = item["metadata"]["name"]
                terminal.warn(f"ConfigMap {namespace}/{name} is left out: {error}")
                continue
            if since <= record.day <= until:
                for key, amounts in record.amounts.items():
                    sums[tuple(getattr(key, name) for name in by)] += amounts
        if problem := await check_operator(kube):
            terminal.warn(problem)
    return sorted(sums.items(), key=lambda row: (-row[1].gpu_seconds_allocated, row[0]))


def _hours(amounts: "Amounts") -> list[str]:
    """Return the amounts of the table in hours."""
    shown = (
        amounts.gpu_seconds_allocated,
        amounts.gpu_seconds_used,
        amounts.gib_seconds_allocated,
        amounts.gib_seconds_used,
    )
    return [f"{amount / _HOUR:,.2f}" for amount in shown]
