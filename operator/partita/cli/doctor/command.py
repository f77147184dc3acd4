"""`partita doctor`: says within minutes whether a cluster fits Partita."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.cli.doctor.check_result import CheckResult

__all__ = ["command"]


@click.command("doctor", short_help="Check whether a cluster and its GPUs fit Partita.")
@click.option("--node", metavar="NAME", default="", help="Check only this node with GPUs.")
@click.option(
    "--no-pods", is_flag=True, help="Only read: create no test Pods, and do not use a GPU."
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Partita's image for the test Pods. By default that of the installed server Pods, else "
    "partita:VERSION.",
)
@namespace_option
@cluster_options
@output_option("partita.cli.doctor.check_result:DoctorReport")
def command(
    *,
    node: str,
    no_pods: bool,
    image: str | None,
    namespace: str | None,
    cluster: Cluster,
    output: str,
) -> None:
    """Check a cluster, its nodes with GPUs, and one GPU.

    It works before and after the installation of Partita. First it reads: version of Kubernetes,
    CRDs and operator, Pod Security, what claims of Pods need, device plugin, MIG, driver, runtime.
    Then two small programs run on one GPU for about a minute and show that memory limits hold, that
    one program does not disturb the other, and that the use is reported. If a partition has room,
    they are two SharedGPUJobs. Otherwise one Pod gets a free GPU (by nvidia.com/gpu: 1, or by a
    claim) and runs MPS itself. Both are deleted at the end, also after Ctrl-C. Nothing of others
    and no setting is changed.

    \b
    Each line is a check and its result:
      OK              it meets the requirement
      Problem         Partita will not work; the line below says what to do
      Not applicable  the cluster does not have this, and does not need it
      Not checked     why it could not be checked

    The exit code is 1 if there is a problem. With -o json the output suits a bug report: it has
    names of nodes, versions and results, but no secrets, addresses or variables.

    \b
    Examples:
      partita doctor
      partita doctor --node gpu-1
      partita doctor --no-pods
      partita doctor -o json > doctor.json
    """  # noqa: D301
    from partita import __version__
    from partita.cli.doctor.check_result import CheckStatus, DoctorReport, summary
    from partita.cli.run_until_stopped import run_until_stopped

    results, facts = run_until_stopped(_check(cluster, node, namespace, image, pods=not no_pods))
    if output == "table":
        _print(results)
    else:
        terminal.dump(DoctorReport(__version__, datetime.now(UTC), results, facts), output)
    terminal.say(summary(results))
    if any(result.status is CheckStatus.PROBLEM for result in results):
        raise click.exceptions.Exit(1)


async def _check(
    cluster: Cluster, node: str, namespace: str | None, image: str | None, *, pods: bool
) -> tuple[list["CheckResult"], dict[str, Any]]:
    """Return the results, and what the test program said of the GPU."""
    from partita import __version__
    from partita.cli.connection import open_cluster, times_of_command
    from partita.cli.doctor.check_result import not_checked
    from partita.cli.doctor.claim_checks import check_claims
    from partita.cli.doctor.cluster_checks import check_cluster
    from partita.cli.doctor.cluster_facts import read_facts
    from partita.cli.doctor.gpu_objects import choose_place, new_name
    from partita.cli.doctor.gpu_pods import GPUTest
    from partita.cli.doctor.gpu_results import GPU_CHECKS
    from partita.cli.doctor.node_checks import check_nodes
    from partita.kube.connect import current_namespace

    namespace = namespace or current_namespace(*cluster)
    async with open_cluster(*cluster) as kube:
        terminal.say("Reading the cluster")
        facts = await read_facts(kube)
        results = [
            *check_cluster(facts, namespace),
            *check_claims(facts),
            *check_nodes(facts, node),
        ]
        place = choose_place(facts, node)
        if not pods or place.reason:
            reason = place.reason if pods else "--no-pods was given"
            return [*results, *(not_checked(reason).of(check) for check in GPU_CHECKS)], {}
        test = GPUTest(
            kube=kube,
            place=place,
            name=new_name(),
            namespace=namespace,
            image=image or facts.image or f"partita:{__version__}",
            runtime_class="nvidia" if "nvidia" in facts.runtime_classes else "",
            say=terminal.say,
            times=times_of_command(),
        )
        return [*results, *await test.run()], test.facts


def _print(results: list["CheckResult"]) -> None:
    rows = [[f.status, f.check, f.node, f.found] for f in results]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for result, row in zip(results, rows, strict=True):
        cells = [(cell or "-").ljust(width) for cell, width in zip(row, widths, strict=False)]
        terminal.data("   ".join([*cells, result.found]))
        if result.remedy:
            terminal.data(f"{'':{widths[0]}}   {result.remedy}")
