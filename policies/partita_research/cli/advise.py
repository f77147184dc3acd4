"""`partita advise`: predicts which applications should share a GPU."""

from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, output_option
from partita_research.cli.gpu_options import gpus_option

if TYPE_CHECKING:
    from partita_policies.types import GPU
    from partita_research.cli.applications import Applications

__all__ = ["command"]


@click.command("advise", short_help="Recommend which applications should share a GPU.")
@click.argument("sources", nargs=-1)
@click.option(
    "--gpu",
    "products",
    multiple=True,
    type=gpus_option(counted=False),
    metavar="PRODUCT",
    help="A GPU product to advise for, such as a100-40gb, or any name with its memory: mine:24Gi. "
    "May be repeated.  [default: those of the profiles or of the workload]",
)
@click.option(
    "--jobs-per-gpu",
    type=click.IntRange(1, 128),
    metavar="NUMBER",
    help="Jobs that may share a GPU.  [default: 16, or the workload's own]",
)
@click.option(
    "--reserve",
    type=click.IntRange(0, 50),
    default=7,
    show_default=True,
    metavar="PERCENT",
    help="Memory kept free, as `memoryReservePercent` of a GPUPartition.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=2),
    default=30,
    show_default=True,
    metavar="NUMBER",
    help="Rows of a table: the best and the worst.",
)
@click.option("--namespace", "-n", help="Of the cluster's profiles, take these.  [default: all]")
@cluster_options
@output_option("partita_research.cli.advise_report:AdviseReport")
def command(
    *,
    sources: tuple[str, ...],
    products: "tuple[list[GPU], ...]",
    jobs_per_gpu: int | None,
    reserve: int,
    rows: int,
    namespace: str | None,
    cluster: Cluster,
    output: str,
) -> None:
    """Recommend which applications should share a GPU, which should not, and how many at once.

    SOURCES are files of ApplicationProfiles (YAML or JSON, as kubectl prints them), workload files
    as `partita simulate` takes them, or workloads of the DqnGPU study by name (random, ...).
    Without SOURCES the ApplicationProfiles of the cluster are used.

    For each application it shows how many copies to run at once. For each pair, and for the best
    co-location of each application, it shows the speed-up over running them one after the other
    (under MPS and under time slicing), the slowdown of each, and the resource that limits them.
    The assumptions follow below the tables.

    \b
    Examples:
      partita advise
      partita advise random
      partita advise profiles.yaml --gpu a100-40gb --gpu l4
      kubectl get applicationprofiles -A -o yaml > p.yaml; partita advise p.yaml -o json
    """  # noqa: D301
    from dataclasses import replace

    terminal.quiet_logs()
    from partita.cli.run_until_stopped import Stopped, run_until_stopped
    from partita_research.advise import advise
    from partita_research.cli.advise_report import assumptions, report, report_data
    from partita_research.cli.applications import from_cluster, from_sources

    if sources and namespace is not None:
        raise click.UsageError("--namespace goes with the cluster's profiles: leave out SOURCES")
    try:
        known: Applications = (
            from_sources(sources)
            if sources
            else run_until_stopped(from_cluster(cluster, namespace))
        )
    except Stopped:
        return
    gpus = [_without(reserve, gpu) for (gpu,) in products] or known.gpus(reserve)
    if not gpus:
        raise click.UsageError(
            "the profiles do not name the GPU that they were measured on: add --gpu PRODUCT"
        )
    if jobs_per_gpu is not None:
        gpus = [replace(gpu, max_jobs=jobs_per_gpu) for gpu in gpus]
    advices = [advise(known.subjects(gpu), gpu) for gpu in gpus]
    if output != "table":
        terminal.dump(report_data(advices), output)
        return
    for advice in advices:
        terminal.display(report(advice, rows=rows))
        terminal.data("")
    for line in assumptions(advices):
        terminal.display(line)


def _without(reserve: int, gpu: "GPU") -> "GPU":
    from dataclasses import replace

    return replace(gpu, memory=gpu.memory * (100 - reserve) // 100)
