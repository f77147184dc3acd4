"""`partita drain`: take GPUs out of service for a while, or back."""

from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import complete_gpus
from partita.cli.options import kubeconfig_option

if TYPE_CHECKING:
    from partita.kube.client import Kube

__all__ = ["command"]


@click.command("drain", short_help="Let GPUs take no more jobs, for maintenance.")
@click.argument("gpus", nargs=-1, metavar="[GPU]...", shell_complete=complete_gpus)
@click.option("--node", metavar="NAME", help="All GPUs of this node.")
@click.option("--undo", is_flag=True, help="Let them take jobs again.")
@kubeconfig_option
def command(*, gpus: tuple[str, ...], node: str | None, undo: bool, kubeconfig: str | None) -> None:
    """Let each GPU, a GPUServer by its name, take no more jobs.

    Jobs that run there go on; those that still do when the partition's drainTimeout is over are
    ended and queued again, which counts as nobody's failure. The partition takes no other GPU in
    its place. It sets the GPUServer's spec.drainSince.

    \b
    Examples:
      partita drain shared-0
      partita drain --node gpu-node-3
      partita drain --node gpu-node-3 --undo
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    if bool(gpus) == bool(node):
        raise click.UsageError("name either GPUs or --node: `partita top` shows both")
    terminal.quiet_logs()
    try:
        lines = run_until_stopped(_drain(gpus, node, undo=undo, kubeconfig=kubeconfig))
    except Stopped:
        return
    for line in lines:
        terminal.say(line)


async def _drain(
    gpus: tuple[str, ...], node: str | None, *, undo: bool, kubeconfig: str | None
) -> list[str]:
    from datetime import UTC, datetime

    from partita.cli.connection import open_cluster, readable
    from partita.kube.client import SERVERS
    from partita.models import GPUServer
    from partita.models.quantities import format_time

    since = None if undo else format_time(datetime.now(UTC))
    lines = []
    async with open_cluster(kubeconfig) as kube:
        for body in await _chosen(kube, gpus, node):
            try:
                server = readable(GPUServer, body)
            except terminal.UserError as error:
                lines.append(str(error))
                continue
            name = server.metadata.name
            if (server.spec.drain_since is None) == undo:
                lines.append(f"{name} {'takes jobs' if undo else 'is drained'} already")
                continue
            await kube.patch(SERVERS, name, {"spec": {"drainSince": since}})
            jobs = sorted(f"{a.namespace}/{a.name}" for a in server.status.allocations.values())
            left = f"; still on it: {', '.join(jobs)}" if jobs else ""
            lines.append(f"{name} takes {'jobs again' if undo else f'no more jobs{left}'}")
    return lines


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
