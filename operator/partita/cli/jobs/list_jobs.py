"""`partita jobs`: the jobs of one namespace or of all, with their state and reason."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.models import SharedGPUJob

__all__ = ["command"]


@click.command("jobs", short_help="List jobs with their state and reason.")
@namespace_option
@click.option("--all-namespaces", "-A", is_flag=True, help="List the jobs of all namespaces.")
@cluster_options
@output_option("wide")
def command(*, namespace: str | None, all_namespaces: bool, cluster: Cluster, output: str) -> None:
    """List SharedGPUJobs: running jobs first, then the queue, then finished jobs.

    The wide format adds the node, the GPUs, the application and the message of each job.

    \b
    Examples:
      partita jobs -n team-a
      partita jobs -A -o wide
      partita jobs -A -o json | jq '.[] | select(.phase == "Failed") | .name'
    """  # noqa: D301
    from partita.cli.as_data import as_data
    from partita.cli.run_until_stopped import run_until_stopped

    if all_namespaces and namespace is not None:
        raise click.UsageError("--all-namespaces and --namespace exclude each other: write one")
    terminal.quiet_logs()
    rows, where = run_until_stopped(_read(namespace, cluster, everywhere=all_namespaces))
    if output in {"json", "yaml"}:
        terminal.dump(as_data(rows), output)
    elif rows:
        terminal.columns(_table(rows, wide=output == "wide", namespaces=all_namespaces))
    else:
        terminal.say(f"There are no jobs in {where}.")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of the list; memory in bytes, durations in seconds."""

    namespace: str
    name: str
    partition: str
    phase: str
    reason: str
    message: str
    queue_position: int | None
    request: str
    gpu_memory: int | None
    gpu_memory_limit: int | None
    gpus: int
    node: str
    servers: tuple[str, ...]
    application: str
    age: float


async def _read(
    namespace: str | None, cluster: Cluster, *, everywhere: bool
) -> tuple[list[JobRow], str]:
    """Return the rows, and a text that describes their namespaces."""
    from partita.cli.connection import open_cluster, readable
    from partita.cli.jobs.find_job import check_namespace
    from partita.kube.client import JOBS
    from partita.kube.connect import current_namespace
    from partita.models import SharedGPUJob

    async with open_cluster(*cluster) as kube:
        chosen = "" if everywhere else namespace or current_namespace(*cluster)
        found, _ = await kube.list(JOBS, namespace=chosen)
        if chosen and not found:
            await check_namespace(kube, chosen)
    now = datetime.now(UTC)
    rows = []
    for body in found:
        try:
            rows.append(_row(readable(SharedGPUJob, body), now))
        except terminal.UserError as error:
            terminal.warn(str(error))
    rows.sort(key=_order)
    return rows, f"namespace {chosen}" if chosen else "any namespace"


def _row(job: "SharedGPUJob", now: datetime) -> JobRow:
    from partita.models.quantities import format_request, seconds_since

    spec, status = job.spec, job.status
    place = status.assignment
    return JobRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        partition=spec.partition,
        phase=status.phase.value if status.phase else "Queued",
        reason=status.reason,
        message=status.message,
        queue_position=status.queue_position,
        request=format_request(spec.gpu_memory, spec.slice, spec.gpus, spec.gpu_memory_limit),
        gpu_memory=spec.gpu_memory,
        gpu_memory_limit=spec.gpu_memory_limit,
        gpus=spec.gpus,
        node=place.node if place else "",
        servers=tuple(place.servers) if place else (),
        application=spec.application or "",
        age=round(seconds_since(job.metadata.creation_timestamp, now), 3),
    )


_PHASES = ("Running", "Assigned", "Queued", "Suspended", "Succeeded", "Failed")


def _order(row: JobRow) -> tuple[int, str, bool, int, float, str]:
    position = row.queue_position
    phase = _PHASES.index(row.phase)
    return (phase, row.partition, position is None, position or 0, -row.age, row.name)


def _table(rows: list[JobRow], *, wide: bool, namespaces: bool) -> list[list[str]]:
    """Return the header and a row of cells for each job."""
    from partita.cli.number_format import duration

    header = ["NAMESPACE"] if namespaces else []
    header += ["NAME", "PARTITION", "PHASE", "POSITION", "REQUEST", "AGE", "REASON"]
    header += ["NODE", "GPUS", "APPLICATION", "MESSAGE"] if wide else []
    table = [header]
    for row in rows:
        cells = [row.namespace] if namespaces else []
        position = "" if row.queue_position is None else str(row.queue_position)
        cells += [row.name, row.partition, row.phase, position, row.request]
        cells += [duration(row.age), row.reason]
        cells += [row.node, ", ".join(row.servers), row.application, row.message] if wide else []
        table.append(cells)
    return table
