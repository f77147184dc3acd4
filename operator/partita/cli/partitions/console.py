"""`partita console`: GPUs, slices and queues in a browser."""

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, output_option

__all__ = ["ServedConsole", "command"]


class ServedConsole(TypedDict):
    """Where the page is; printed as soon as it is served."""

    url: str


@click.command("console", short_help="Show GPUs, slices and queues in a browser.")
@cluster_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    help="Port of the web server. 0 takes a free one.",
)
@click.option(
    "--in-cluster",
    is_flag=True,
    help="Listen on all addresses and ask each viewer for a token of the API server. Show job "
    "names only of the namespaces whose jobs that token may list.",
)
@output_option("partita.cli.partitions.console:ServedConsole", usual="text")
def command(*, cluster: Cluster, port: int, in_cluster: bool, output: str) -> None:
    """Serve a web page with jobs, GPUs, queues and the last hours, until Ctrl-C.

    The server reads with the rights of the kubeconfig, writes nothing, and accepts connections only
    from this machine. What may not be listed in all namespaces is shown of the context's namespace.
    As a Service in the cluster (--in-cluster) it asks for a token: create one with `kubectl create
    token`.

    \b
    Examples:
      partita console
      partita console --port 9000 --kubeconfig ~/.kube/gpus
      kubectl -n partita-system port-forward service/partita-console 8090
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    try:
        run_until_stopped(_serve(cluster, port, output, in_cluster=in_cluster))
    except Stopped:
        return


async def _serve(cluster: Cluster, port: int, output: str, *, in_cluster: bool) -> None:
    import asyncio

    from partita.cli.connection import explained
    from partita.console.access import ByToken, ViewerAccess
    from partita.console.web_server import serve_console
    from partita.garbage_collection import collect_often
    from partita.kube.client import Kube
    from partita.kube.connect import connect, current_namespace

    collect_often()
    host = "0.0.0.0" if in_cluster else "127.0.0.1"  # noqa: S104 - its viewers have tokens
    with explained():
        async with connect(*cluster) as api:
            access = ByToken(Kube(api)) if in_cluster else ViewerAccess()
            own = "" if in_cluster else current_namespace(*cluster)
            serving = serve_console(api, access, host=host, port=port, namespace=own)
            try:
                async with serving as (_, taken):
                    url = f"http://{'localhost' if not in_cluster else host}:{taken}"
                    terminal.say(f"open {url}")
                    if output != "text":
                        terminal.dump(ServedConsole(url=url), output)
                    await asyncio.Event().wait()
            except OSError as error:
                raise terminal.UserError(
                    f"port {port} cannot be used ({error.strerror}): name another with --port"
                ) from error
