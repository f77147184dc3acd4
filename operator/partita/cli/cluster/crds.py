"""`partita crds`: prints, writes or installs the CustomResourceDefinitions."""

from pathlib import Path
from typing import Any, Literal

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, output_option

__all__ = ["CRDOutput", "command"]


class PrintedCRDs(TypedDict):
    """The definitions, as `kubectl apply` takes them."""

    apiVersion: Literal["v1"]
    kind: Literal["List"]
    items: list[dict[str, Any]]


class CRDChange(TypedDict):
    """What was done with a definition, by --install or --directory."""

    name: str
    change: Literal["created", "updated", "unchanged", "written"]
    file: str | None
    """The file that was written."""


CRDOutput = PrintedCRDs | list[CRDChange]


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
@output_option("partita.cli.cluster.crds:CRDOutput", usual="text")
def command(*, directory: Path | None, install: bool, cluster: Cluster, output: str) -> None:
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
    found: CRDOutput
    if install:
        from partita.cli.run_until_stopped import run_until_stopped

        found = run_until_stopped(_install(cluster))
        lines = [
            f"customresourcedefinition.apiextensions.k8s.io/{one['name']} {one['change']}"
            for one in found
        ]
    elif directory is not None:
        found = _written(directory)
        lines = [str(one["file"]) for one in found]
    else:
        found = {"apiVersion": "v1", "kind": "List", "items": crd.crds()}
        lines = ["---\n".join(crd.render(definition) for definition in crd.crds()).rstrip()]
    if output != "text":
        terminal.dump(found, output)
        return
    for line in lines:
        terminal.data(line)


def _written(directory: Path) -> list[CRDChange]:
    from partita.models import crd

    definitions = crd.crds()
    try:
        files = crd.write(directory)
    except OSError as error:
        raise terminal.UserError(
            f"{directory} cannot be written: {error.strerror}; name another --directory"
        ) from error
    return [
        {"name": definition["metadata"]["name"], "change": "written", "file": str(file)}
        for definition, file in zip(definitions, files, strict=True)
    ]


async def _install(cluster: Cluster) -> list[CRDChange]:
    from partita.cli.cluster.install import install_crds
    from partita.cli.connection import open_cluster

    async with open_cluster(*cluster) as kube:
        changes = await install_crds(kube)
    return [{"name": name, "change": change, "file": None} for name, change in changes]
