"""`partita crds`: prints, writes or installs the CustomResourceDefinitions."""

from pathlib import Path

import click

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options

__all__ = ["command"]


@click.command("crds", short_help="Print or install the CustomResourceDefinitions.")
@click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write them to this folder, one file for each kind, instead of printing them.",
)
@click.option(
    "--install",
    is_flag=True,
    help="Create or update them in the cluster instead of printing them.",
)
@cluster_options
def command(*, directory: Path | None, install: bool, cluster: Cluster) -> None:
    """Print the CustomResourceDefinitions as YAML.

    They define GPUPartition, SharedGPUJob, GPUServer and ApplicationProfile and describe every
    field. Install them in a cluster before anything else of Partita.

    \b
    Examples:
      partita crds | kubectl apply --server-side -f -
      partita crds --install
      partita crds --directory crds/
    """  # noqa: D301
    from partita.models import crd

    if install and directory is not None:
        raise click.UsageError("--directory writes files and --install does not: write one of them")
    if install:
        import asyncio

        terminal.quiet_logs()
        for name, change in asyncio.run(_install(cluster)):
            terminal.data(f"customresourcedefinition.apiextensions.k8s.io/{name} {change}")
    elif directory is not None:
        try:
            for path in crd.write(directory):
                terminal.data(str(path))
        except OSError as error:
            raise terminal.UserError(
                f"{directory} cannot be written: {error.strerror}; name another --directory"
            ) from error
    else:
        terminal.data("---\n".join(crd.render(definition) for definition in crd.crds()).rstrip())


async def _install(cluster: Cluster) -> list[tuple[str, str]]:
    from partita.cli.cluster.install import install_crds
    from partita.cli.connection import open_cluster

    async with open_cluster(*cluster) as kube:
        return await install_crds(kube)
