"""`partita workloads`: Pods with claims of GPU slices, with their state and reason."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.reconcile.claims.workloads import WorkloadView

__all__ = ["command"]


@click.command("workloads", short_help="List Pods with GPU slices, and those that wait.")
@namespace_option
@click.option("--all-namespaces", "-A", is_flag=True, help="List the Pods of all namespaces.")
@cluster_options
@output_option("wide")
def command(*, namespace: str | None, all_namespaces: bool, cluster: Cluster, output: str) -> None:
    """List the Pods that have or want a slice of a GPU by a ResourceClaim: running Pods first.

    Deployments, notebooks, Jobs and other controllers make these Pods. IDLE says for how long no
    kernel of a Pod has run. The wide format adds the node, the GPU, the claim and the message.

    \b
    Examples:
      partita workloads -n team-a
      partita workloads -A -o wide
      partita workloads -A -o json | jq '.[] | select(.phase == "Queued") | .name'
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
        terminal.say(f"There are no Pods with claims of GPU slices in {where}.")


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload of the list; memory in bytes, durations in seconds."""

    namespace: str
    name: str
    application: str
    partition: str
    phase: str
    lasting: bool
    reason: str
    message: str
    queue_position: int | None
    request: str
    gpu_memory: int | None
    used: int | None
    idle: float | None
    node: str
    server: str
    claim: str
    age: float


async def _read(
    namespace: str | None, cluster: Cluster, *, everywhere: bool
) -> tuple[list[WorkloadRow], str]:
    """Return the rows, and a text that describes their namespaces."""
    from partita.cli.cluster_state import state_of
    from partita.cli.connection import open_cluster
    from partita.cli.jobs.find_job import check_namespace
    from partita.kube.client import CLAIMS, PARTITIONS, PODS, SERVERS
    from partita.kube.connect import current_namespace
    from partita.kube.errors import ForbiddenError, NotFoundError
    from partita.reconcile.claims.workloads import all_workloads

    async with open_cluster(*cluster) as kube:
        chosen = "" if everywhere else namespace or current_namespace(*cluster)
        try:
            claims, _ = await kube.list(CLAIMS, namespace=chosen)
        except NotFoundError as error:
            raise terminal.UserError(
                "this cluster does not serve resource.k8s.io/v1, so no Pod has a slice by a "
                "claim: that needs Kubernetes 1.34"
            ) from error
        if chosen and not claims:
            await check_namespace(kube, chosen)
        lists = {CLAIMS: claims, PODS: (await kube.list(PODS, namespace=chosen))[0]}
        missing = []
        for kind in (PARTITIONS, SERVERS):
            try:
                lists[kind] = (await kube.list(kind))[0]
            except ForbiddenError:
                missing.append(kind.plural)
    if missing:
        terminal.warn(
            f"Node, GPU, use and idle time are not shown: you may not list {', '.join(missing)}."
        )
    now = datetime.now(UTC)
    views = all_workloads(state_of(lists))
    rows = [_row(view, now) for view in views if chosen in {"", view.namespace}]
    return rows, f"namespace {chosen}" if chosen else "any namespace"


def _row(view: "WorkloadView", now: datetime) -> WorkloadRow:
    from partita.models.quantities import format_request, seconds_since

    place = view.place
    idle = place.idle_since if place is not None else None
    return WorkloadRow(
        namespace=view.namespace,
        name=view.name,
        application=view.application,
        partition=view.partition,
        phase=view.phase,
        lasting=view.lasting,
        reason=view.reason,
        message=view.message,
        queue_position=view.position,
        request=format_request(view.memory, view.slice, 1, view.memory_limit),
        gpu_memory=view.memory,
        used=place.used if place is not None else None,
        idle=round(seconds_since(idle, now), 3) if idle is not None else None,
        node=place.node if place is not None else "",
        server=place.server if place is not None else "",
        claim=view.claim,
        age=round(seconds_since(view.created, now), 3),
    )


def _table(rows: list[WorkloadRow], *, wide: bool, namespaces: bool) -> list[list[str]]:
    """Return the header and a row of cells for each workload."""
    from partita.cli.number_format import duration, gib

    header = ["NAMESPACE"] if namespaces else []
    header += ["NAME", "OF", "PARTITION", "PHASE", "POSITION", "REQUEST", "USED", "IDLE", "AGE"]
    header += ["REASON", "NODE", "GPU", "CLAIM", "MESSAGE"] if wide else ["REASON"]
    table = [header]
    for row in rows:
        cells = [row.namespace] if namespaces else []
        position = "" if row.queue_position is None else str(row.queue_position)
        used = "" if row.used is None else f"{gib(row.used)} GiB"
        idle = "" if row.idle is None else duration(row.idle)
        cells += [row.name, row.application, row.partition, row.phase, position, row.request]
        cells += [used, idle, duration(row.age), row.reason]
        cells += [row.node, row.server, row.claim, row.message] if wide else []
        table.append(cells)
    return table
