"""`partita bundle`: what somebody who helps needs to see, in one archive without secrets."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.options import kubeconfig_option

if TYPE_CHECKING:
    from partita.kube.client import Kube

__all__ = ["command"]


@click.command("bundle", short_help="Collect a support archive, without secrets.")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to; by default partita-bundle-<time>.tar.gz here.",
)
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    metavar="LINES",
    help="Lines of each log of Partita's own Pods.",
)
@kubeconfig_option
def command(*, output: Path | None, tail: int, kubeconfig: str | None) -> None:
    """Collect Partita's objects, its Pods, nodes with GPUs, Events and its own logs.

    Secrets and ConfigMaps are not asked for, logs of jobs neither, and of every container the
    variables' values, the command and the arguments are left out, for secrets are written there
    as well. What may not be read is listed in the archive, and the rest is collected.

    \b
    Examples:
      partita bundle
      partita bundle --output case-17.tar.gz --tail 500
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    path = output or Path(f"partita-bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    try:
        files = run_until_stopped(_collect(kubeconfig, tail))
    except Stopped:
        return
    _write(path, files)
    missing = files["missing.txt"].decode().splitlines()
    terminal.say(f"{path}: {len(files)} files; read it before you hand it on")
    for line in missing:
        terminal.warn(line)


async def _collect(kubeconfig: str | None, tail: int) -> dict[str, bytes]:
    import platform

    import orjson

    from partita import __version__
    from partita.cli.cluster.redaction import redacted
    from partita.cli.connection import open_cluster
    from partita.constants import GROUP, LABEL_COMPONENT
    from partita.kube import client
    from partita.kube.errors import KubernetesError

    files = {
        "about.json": orjson.dumps(
            {
                "partita": __version__,
                "python": platform.python_version(),
                "time": datetime.now(UTC).isoformat(),
            },
            option=orjson.OPT_INDENT_2,
        )
    }
    missing: list[str] = []
    sources = {
        client.PARTITIONS: "",
        client.SERVERS: "",
        client.JOBS: "",
        client.PROFILES: "",
        client.PODS: LABEL_COMPONENT,
        client.NODES: "",
        client.LEASES: "",
        client.EVENTS: "",
        client.CRDS: "",
    }
    async with open_cluster(kubeconfig) as kube:
        for kind, selector in sources.items():
            try:
                items, _ = await kube.list(kind, label_selector=selector)
            except KubernetesError as error:
                missing.append(f"{kind.plural} are missing: {error.message}")
                continue
            kept = [redacted(item) for item in items if _concerns_us(kind, item, GROUP)]
            files[f"{kind.plural}.json"] = orjson.dumps(kept, option=orjson.OPT_INDENT_2)
        files |= await _logs(kube, tail, missing)
    files["missing.txt"] = "".join(f"{line}\n" for line in missing).encode()
    return files


def _concerns_us(kind: Any, item: dict[str, Any], group: str) -> bool:
    from partita.kube import client

    if kind == client.EVENTS:
        about = item.get("involvedObject") or {}
        return str(about.get("apiVersion", "")).startswith(group) or about.get("kind") == "Pod"
    if kind == client.CRDS:
        return bool(item["spec"]["group"] == group)
    if kind == client.LEASES:
        return "partita" in item["metadata"]["name"]
    return True


async def _logs(kube: "Kube", tail: int, missing: list[str]) -> dict[str, bytes]:
    """Read the logs of the operator's and the servers' Pods."""
    from partita.constants import COMPONENT_SERVER, LABEL_COMPONENT
    from partita.kube.client import PODS
    from partita.kube.errors import KubernetesError

    pods: list[dict[str, Any]] = []
    for selector in (f"{LABEL_COMPONENT}={COMPONENT_SERVER}", "app.kubernetes.io/name=partita"):
        try:
            pods += (await kube.list(PODS, label_selector=selector))[0]
        except KubernetesError:
            continue  # said with the list of all Pods
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
        raise terminal.UserError(f"{path} is there already: name another file") from error
    except OSError as error:
        raise terminal.UserError(f"{path} cannot be written: {error.strerror}") from error
