"""`partita uninstall`: remove Partita from a cluster, jobs and CRDs included."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, output_option

if TYPE_CHECKING:
    from partita.kube.client import Kind

__all__ = ["Removal", "command"]

Json = dict[str, Any]


class RemovedKind(TypedDict):
    """Objects of one kind, in the order in which kinds are deleted."""

    kind: str
    names: list[str]


class HelmRelease(TypedDict):
    """A release of which Helm keeps a record: `helm uninstall` removes it."""

    name: str
    namespace: str


class Removal(TypedDict):
    """What is or would be deleted."""

    server: str
    """URL of the cluster's API server."""
    dryRun: bool
    objects: list[RemovedKind]
    helmReleases: list[HelmRelease]


@click.command("uninstall", short_help="Remove Partita from the cluster.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--end-jobs", is_flag=True, help="End jobs that run; without it they prevent this.")
@click.option("--keep-profiles", is_flag=True, help="Keep the ApplicationProfiles and their CRD.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that one step may wait, such as for Pods to end.",
)
@cluster_options
@output_option("partita.cli.cluster.uninstall:Removal", usual="text")
def command(
    *,
    dry_run: bool,
    yes: bool,
    end_jobs: bool,
    keep_profiles: bool,
    timeout: float,
    cluster: Cluster,
    output: str,
) -> None:
    """Remove Partita from the cluster: jobs, partitions, the operator, and the CRDs.

    It deletes partitions and jobs, waits until the operator has given all GPUs back, and then
    deletes the operator and everything else that was installed. If no operator is running, it
    gives the GPUs back itself. After an interruption, run it again: it continues. It refuses as
    long as Pods of other controllers have a slice of a GPU by a claim.

    \b
    Examples:
      partita uninstall --dry-run
      partita uninstall
      partita uninstall --yes --end-jobs
    """  # noqa: D301
    from partita.cli.cluster.removal import (
        find_installation,
        pods_with_slices,
        remove,
        running_jobs,
    )
    from partita.cli.connection import open_cluster
    from partita.cli.run_until_stopped import run_until_stopped
    from partita.kube.client import JOBS, SERVERS

    async def find() -> tuple[str, dict["Kind", list[Json]]]:
        async with open_cluster(*cluster) as kube:
            return kube.api.configuration.host, await find_installation(kube)

    async def carry_out() -> None:
        async with open_cluster(*cluster) as kube:
            await remove(kube, keep_profiles=keep_profiles, patience=timeout, report=terminal.say)

    server, found = run_until_stopped(find())
    removal = _removal(server, found, dry_run=dry_run, keep_profiles=keep_profiles)
    if not removal["objects"]:
        terminal.say(f"Nothing to remove: the cluster at {server} has no objects of Partita.")
    else:
        for line in _lines(removal):
            (terminal.data if output == "text" else terminal.say)(line)
        if not dry_run:
            _check(pods_with_slices(found[SERVERS]), running_jobs(found[JOBS]), end_jobs=end_jobs)
            if not yes:
                click.confirm("Delete all of this?", abort=True, err=True)
            run_until_stopped(carry_out())
            terminal.say("Partita is removed.")
            for one in removal["helmReleases"]:
                release = f"{one['name']} --namespace {one['namespace']}"
                terminal.say(f"Remove Helm's own record: helm uninstall {release}")
    if output != "text":
        terminal.dump(removal, output)


def _check(pods: list[str], running: list[str], *, end_jobs: bool) -> None:
    """Refuse to end what uses a GPU, unless it may be ended."""
    if pods:
        raise terminal.UserError(
            f"{len(pods)} Pods use a slice of a GPU by a claim: "
            f"{', '.join(pods[:5])}. Delete their Deployments, Jobs or other owners, or "
            "scale them to 0: a Pod that this command ends would be created again"
        )
    if running and not end_jobs:
        raise terminal.UserError(
            f"{len(running)} jobs run: {', '.join(running[:5])}. "
            "Wait for them, or end them with --end-jobs"
        )


def _removal(
    server: str, found: dict["Kind", list[Json]], *, dry_run: bool, keep_profiles: bool
) -> Removal:
    from partita.cli.cluster.removal import KEPT
    from partita.kube.client import PROFILES

    objects: list[RemovedKind] = []
    for kind, those in found.items():
        names = sorted(one["metadata"]["name"] for one in those)
        if keep_profiles:
            names = [name for name in names if kind != PROFILES and name != KEPT]
        if names:
            objects.append({"kind": kind.kind, "names": names})
    annotations = [
        o["metadata"].get("annotations") or {} for those in found.values() for o in those
    ]
    helm = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
    releases = sorted({(a[helm[0]], a[helm[1]]) for a in annotations if helm[0] in a})
    return {
        "server": server,
        "dryRun": dry_run,
        "objects": objects,
        "helmReleases": [{"name": name, "namespace": where} for name, where in releases],
    }


def _lines(removal: Removal) -> Iterator[str]:
    """Yield a line for each kind of object that is deleted."""
    yield f"These are deleted from the cluster at {removal['server']}:"
    for one in removal["objects"]:
        names = one["names"]
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        yield f"  {len(names)} {one['kind']}{'s' if len(names) > 1 else ''}: {shown}"
