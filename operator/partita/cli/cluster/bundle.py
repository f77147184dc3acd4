"""`partita bundle`: one archive for support, without secrets."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, output_option

if TYPE_CHECKING:
    from partita.kube.client import Kind, Kube

__all__ = ["Bundle", "command"]

Json = dict[str, Any]


class Bundle(TypedDict):
    """The archive."""

    archive: str
    """Its path."""
    files: list[str]
    """The files in it."""
    missing: list[str]
    """What could not be read, and why."""


@click.command("bundle", short_help="Collect a support archive, without secrets.")
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Archive to write. By default partita-bundle-<time>.tar.gz in the current folder.",
)
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    metavar="LINES",
    help="Last lines of each log of Partita's own Pods.",
)
@cluster_options
@output_option("partita.cli.cluster.bundle:Bundle", usual="text")
def command(*, path: Path | None, tail: int, cluster: Cluster, output: str) -> None:
    """Collect Partita's objects, claims of its classes, Pods, nodes, Events and its own logs.

    Of Pods it collects Partita's own, those of jobs, and those with claims.

    Secrets, ConfigMaps and the logs of jobs are not read. The values of variables, the command and
    the arguments of every container are left out, because they can contain secrets. missing.txt
    in the archive lists what could not be read.

    \b
    Examples:
      partita bundle
      partita bundle --file case-17.tar.gz --tail 500
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    path = path or Path(f"partita-bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    files = run_until_stopped(_collect(cluster, tail))
    _write(path, files)
    missing = files["missing.txt"].decode().splitlines()
    terminal.say(f"{path}: {len(files)} files; read it before you share it")
    for line in missing:
        terminal.warn(line)
    if output != "text":
        bundle: Bundle = {"archive": str(path), "files": sorted(files), "missing": missing}
        terminal.dump(bundle, output)


async def _collect(cluster: Cluster, tail: int) -> dict[str, bytes]:
    import platform

    from partita import __version__
    from partita.cli.cluster.redaction import redacted
    from partita.cli.connection import open_cluster
    from partita.kube.errors import KubernetesError, UnavailableError

    about = {
        "partita": __version__,
        "python": platform.python_version(),
        "time": datetime.now(UTC).isoformat(),
    }
    files = {"about.json": _json(about)}
    missing: list[str] = []
    async with open_cluster(*cluster) as kube:
        for kind, concerns_us in _sources().items():
            try:
                items, _ = await kube.list(kind)
            except UnavailableError:
                raise
            except KubernetesError as error:
                missing.append(f"{kind.plural} are missing: {error.message}")
                continue
            missing += _unreadable(kind.kind, items)
            files[f"{kind.plural}.json"] = _json([redacted(i) for i in items if concerns_us(i)])
        files |= await _logs(kube, tail, missing)
    files["missing.txt"] = "".join(f"{line}\n" for line in missing).encode()
    return files


def _json(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def _sources() -> dict["Kind", Callable[[Json], bool]]:
    """Return the kinds that are collected, and which objects of each."""
    from partita.constants import DRIVER, GROUP, LABEL_COMPONENT
    from partita.kube import client
    from partita.models.device_class import names_device_class

    def every(_: Json) -> bool:
        return True

    def claims_slice(item: Json) -> bool:
        return names_device_class(item["spec"])

    def pod(item: Json) -> bool:
        labels = item["metadata"].get("labels") or {}
        return LABEL_COMPONENT in labels or bool(item["spec"].get("resourceClaims"))

    def event(item: Json) -> bool:
        about = item.get("involvedObject") or {}
        return str(about.get("apiVersion", "")).startswith(GROUP) or about.get("kind") == "Pod"

    return {
        **dict.fromkeys((client.PARTITIONS, client.SERVERS, client.JOBS, client.PROFILES), every),
        **dict.fromkeys((client.CLAIMS, client.CLAIM_TEMPLATES), claims_slice),
        client.DEVICE_CLASSES: lambda item: names_device_class(item["metadata"]["name"]),
        client.RESOURCE_SLICES: lambda item: bool(item["spec"]["driver"] == DRIVER),
        client.PODS: pod,
        client.NODES: every,
        client.LEASES: lambda item: "partita" in item["metadata"]["name"],
        client.EVENTS: event,
        client.CRDS: lambda item: bool(item["spec"]["group"] == GROUP),
    }


def _unreadable(kind: str, items: list[Json]) -> list[str]:
    """Return a line for each object that the operator cannot read; the archive contains it, too."""
    from partita.cli.connection import readable
    from partita.models.crd import RESOURCES

    lines = []
    for model in (resource.model for resource in RESOURCES if resource.kind == kind):
        for item in items:
            try:
                readable(model, item)
            except terminal.UserError as error:
                lines.append(str(error))
    return lines


async def _logs(kube: "Kube", tail: int, missing: list[str]) -> dict[str, bytes]:
    """Read the logs of the operator's and the servers' Pods."""
    from partita.constants import COMPONENT_SERVER, LABEL_COMPONENT
    from partita.kube.client import PODS
    from partita.kube.errors import KubernetesError

    pods: list[dict[str, Any]] = []
    for selector in (f"{LABEL_COMPONENT}={COMPONENT_SERVER}", "app.kubernetes.io/name=partita"):
        try:
            pods += (await kube.list(PODS, label_selector=selector))[0]
        except KubernetesError as error:
            missing.append(f"the logs of Pods with {selector} are missing: {error.message}")
    files = {}
    for pod in {p["metadata"]["uid"]: p for p in pods}.values():
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for container in pod["spec"]["containers"]:
            try:
                lines = kube.log(name, namespace, container["name"], tail=tail)
                log = b"".join([chunk async for chunk in lines])
            except KubernetesError as error:
                missing.append(
                    f"the log of {namespace}/{name} {container['name']} is missing: {error.message}"
                )
                continue
            files[f"logs/{namespace}/{name}/{container['name']}.log"] = log
    return files


def _write(path: Path, files: dict[str, bytes]) -> None:
    import io
    import tarfile

    root = path.name.removesuffix(".gz").removesuffix(".tar")
    try:
        with tarfile.open(path, "x:gz") as archive:
            for name, content in sorted(files.items()):
                member = tarfile.TarInfo(f"{root}/{name}")
                member.size, member.mtime = len(content), int(datetime.now(UTC).timestamp())
                archive.addfile(member, io.BytesIO(content))
    except FileExistsError as error:
        raise terminal.UserError(f"{path} already exists: name another file") from error
    except OSError as error:
        raise terminal.UserError(f"{path} cannot be written: {error.strerror}") from error
