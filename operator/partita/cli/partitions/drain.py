"""`partita drain`: stops new jobs on GPUs, or allows them again."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.completions import complete_names
from partita.cli.options import Cluster, cluster_options, output_option

if TYPE_CHECKING:
    from partita.kube.client import Kube

__all__ = ["Drained", "command"]


class DrainedGPU(TypedDict):
    """A GPU that was named, after the command."""

    gpu: str
    """Its GPUServer."""
    drained: bool
    """Whether it is kept from taking new jobs."""
    changed: bool
    """Whether this command changed that."""
    running: list[str]
    """`namespace/name` of the jobs and workloads on it."""


Drained = list[DrainedGPU]


@click.command("drain", short_help="Stop new jobs on GPUs, for maintenance.")
@click.argument("gpus", nargs=-1, metavar="[GPU]...", shell_complete=complete_names("SERVERS"))
@click.option("--node", metavar="NAME", help="All GPUs of this node.")
@click.option("--undo", is_flag=True, help="Accept new jobs again.")
@cluster_options
@output_option("partita.cli.partitions.drain:Drained", usual="text")
def command(
    *, gpus: tuple[str, ...], node: str | None, undo: bool, cluster: Cluster, output: str
) -> None:
    """Stop new jobs on each GPU. A GPU is named by its GPUServer.

    Running jobs continue until the partition's drainTimeout. Then they are ended and queued
    again; this does not count as a failure. The partition does not take another GPU in its place.
    It sets spec.drainSince of the GPUServer. `partita top` shows the names of the GPUs.

    \b
    Examples:
      partita drain shared-0
      partita drain --node gpu-node-3
      partita drain --node gpu-node-3 --undo
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    if bool(gpus) == bool(node):
        raise click.UsageError("name either GPUs or a node with --node: `partita top` shows both")
    drained, unreadable = run_until_stopped(_drain(gpus, node, undo=undo, cluster=cluster))
    if output != "text":
        terminal.dump(drained, output)
    if unreadable:
        raise terminal.UserError("; ".join(unreadable))


async def _drain(
    gpus: tuple[str, ...], node: str | None, *, undo: bool, cluster: Cluster
) -> tuple[Drained, list[str]]:
    """Drain the GPUs; return them, and an error message for each that cannot be read."""
    from datetime import UTC, datetime

    from partita.cli.connection import open_cluster, readable
    from partita.kube.client import SERVERS
    from partita.models import GPUServer
    from partita.models.quantities import format_time

    since = None if undo else format_time(datetime.now(UTC))
    drained: Drained = []
    unreadable = []
    async with open_cluster(*cluster) as kube:
        for body in await _chosen(kube, gpus, node):
            try:
                server = readable(GPUServer, body)
            except terminal.UserError as error:
                unreadable.append(str(error))
                continue
            gpu = DrainedGPU(
                gpu=server.metadata.name,
                drained=not undo,
                changed=(server.spec.drain_since is None) != undo,
                running=sorted(
                    f"{a.namespace}/{a.user}" for a in server.status.allocations.values()
                ),
            )
            if gpu["changed"]:
                await kube.patch(SERVERS, gpu["gpu"], {"spec": {"drainSince": since}})
            terminal.say(_sentence(gpu))
            drained.append(gpu)
    return drained, unreadable


def _sentence(gpu: DrainedGPU) -> str:
    if not gpu["changed"]:
        return f"{gpu['gpu']} already {'is drained' if gpu['drained'] else 'accepts jobs'}"
    if not gpu["drained"]:
        return f"{gpu['gpu']} accepts jobs again"
    left = f"; running: {', '.join(gpu['running'])}" if gpu["running"] else ""
    return f"{gpu['gpu']} accepts no new jobs{left}"


async def _chosen(kube: "Kube", gpus: tuple[str, ...], node: str | None) -> list[dict[str, Any]]:
    from partita.kube.client import SERVERS

    servers, _ = await kube.list(SERVERS)
    by_name = {server["metadata"]["name"]: server for server in servers}
    if node is not None:
        found = [s for s in servers if (s.get("status") or {}).get("node") == node]
        if not found:
            nodes = sorted({(s.get("status") or {}).get("node") or "" for s in servers} - {""})
            raise terminal.UserError(
                f"no partition has a GPU on node {node} (there are: {', '.join(nodes) or 'none'})"
            )
        return found
    unknown = [name for name in gpus if name not in by_name]
    if unknown:
        there = ", ".join(sorted(by_name)) or "none"
        raise terminal.UserError(f"there is no GPUServer {unknown[0]} (there are: {there})")
    return [by_name[name] for name in gpus]
