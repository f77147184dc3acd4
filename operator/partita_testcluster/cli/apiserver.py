"""`partita apiserver`: the embedded API server without other components."""

from pathlib import Path

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import output_option

__all__ = ["ServedAPIServer", "command"]


class ServedAPIServer(TypedDict):
    """Where the API server is; printed as soon as it answers."""

    url: str
    kubeconfig: str
    """Path of the file."""


@click.command("apiserver", short_help="Run the embedded API server.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on; by default a free one.",
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write its kubeconfig; by default a temporary file, removed at the end.",
)
@click.option(
    "--crds/--no-crds", default=True, help="Whether to install Partita's CustomResourceDefinitions."
)
@output_option("partita_testcluster.cli.apiserver:ServedAPIServer", usual="text")
def command(*, host: str, port: int, kubeconfig_out: Path | None, crds: bool, output: str) -> None:
    """Run an API server in this process, until Ctrl-C.

    It is for development and demonstrations. kubectl and the operator work with it, objects are
    kept in memory, and whoever reaches its port may do everything. It runs no Pods: `partita nodes`
    simulates nodes that do.

    \b
    Example:
      partita apiserver --kubeconfig-out /tmp/kubeconfig
      kubectl --kubeconfig /tmp/kubeconfig api-resources --categories partita
    """  # noqa: D301
    import asyncio

    from partita.garbage_collection import collect_often

    terminal.quiet_logs()
    collect_often()
    asyncio.run(_serve(host, port, kubeconfig_out, output, crds=crds))


async def _serve(host: str, port: int, out: Path | None, output: str, *, crds: bool) -> None:
    from tempfile import TemporaryDirectory

    import yaml

    from partita.cli.cluster.install import install_crds
    from partita.cli.connection import open_cluster
    from partita.cli.run_until_stopped import stop_on_signals
    from partita_testcluster.apiserver.server import EmbeddedAPIServer

    stop = stop_on_signals()
    server = EmbeddedAPIServer(host, port)
    try:
        await server.start()
    except OSError as error:
        raise terminal.UserError(
            f"port {port} of {host} cannot be used: {error.strerror}; name another --port or --host"
        ) from error
    try:
        with TemporaryDirectory(prefix="partita-") as folder:
            path = (out or Path(folder, "kubeconfig")).absolute()
            try:
                path.write_text(yaml.safe_dump(server.kubeconfig()), encoding="utf-8")
            except OSError as error:
                raise terminal.UserError(
                    f"{path} cannot be written: {error.strerror}; name another --kubeconfig-out"
                ) from error
            if crds:
                async with open_cluster(str(path)) as kube:
                    await install_crds(kube)
            terminal.say(f"Serving on {server.url} until Ctrl-C. In another shell:")
            if output == "text":
                terminal.data(f"export KUBECONFIG={path}")
            else:
                terminal.dump(ServedAPIServer(url=server.url, kubeconfig=str(path)), output)
            await stop.wait()
    finally:
        await server.stop()
