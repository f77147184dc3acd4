"""`partita agent`: the process on a GPU's node, in the server Pod."""

from pathlib import Path
from typing import Any

import click

from partita.cli.options import kubeconfig_option, setting

__all__ = ["command"]

_SERVER = setting("--server", required=True, metavar="NAME", help="The GPUServer.")
_RUN_DIRECTORY = setting(
    "--run-directory",
    type=click.Path(path_type=Path),
    default="/run/partita",
    help="Folder that agent, MPS and jobs share. It is a folder of the node, with the same path "
    "in every Pod.",
)


@click.group("agent", short_help="Serve one GPU on its node.", invoke_without_command=True)
@click.pass_context
@kubeconfig_option
@setting("--server", metavar="NAME", help="The GPUServer.")
@setting(
    "--mode",
    type=click.Choice(["MPS", "TimeSlicing", "Exclusive"]),
    default="MPS",
    help="How jobs share the GPU.",
)
@setting(
    "--device-injection",
    "injection",
    type=click.Choice(["Auto", "CDI", "RuntimeClass"]),
    default="Auto",
    help="How the GPU's device files reach the jobs.",
)
@setting("--node", default="", help="This node's name.")
@setting("--namespace", default="partita-system", help="The server Pod's namespace.")
@setting("--pod-uid", default="", help="The server Pod's UID.")
@setting(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of /metrics; 0 serves none.",
)
@setting(
    "--kubelet-directory",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet",
    help="Kubelet's folder, with the sockets of kubelet and its plugins.",
)
@_RUN_DIRECTORY
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def command(
    ctx: click.Context,
    /,
    *,
    kubeconfig: str | None,
    server: str | None,
    mode: str,
    kubelet_directory: Path,
    run_directory: Path,
    verbose: bool,
    **settings: Any,
) -> None:
    """Serve one GPU on its node until stopped.

    The operator starts the agent in server Pods and sets all options. The agent finds the GPU of
    its Pod, claims it, prepares the ResourceClaims of Pods for kubelet, monitors the GPU, MPS and
    the jobs, and reports to the GPUServer. Jobs continue to run while the agent restarts.

    \b
    Example, on a node with a GPU and a kubelet, as root:
      partita agent --kubeconfig /etc/partita/kubeconfig --server gpus-0 --node "$(hostname)" &
      partita agent mps --server gpus-0
    """  # noqa: D301
    if ctx.invoked_subcommand is not None:
        return
    if server is None:
        raise click.MissingParameter(ctx=ctx, param_hint="--server", param_type="option")
    from partita.import_trim import leave_out_unused

    leave_out_unused()
    import asyncio

    from partita.agent.main import run_agent
    from partita.agent.paths import Paths
    from partita.agent.settings import AgentSettings
    from partita.cli.connection import explained
    from partita.cli.run_until_stopped import stop_on_signals
    from partita.models import SharingMode
    from partita.process.logs import configure_logs

    configure_logs(verbose=verbose)
    agent = AgentSettings(
        server=server,
        mode=SharingMode(mode),
        paths=Paths(server, run_directory),
        kubelet=kubelet_directory,
        **settings,
    )

    async def serve() -> None:
        await run_agent(agent, stop_on_signals(), kubeconfig)

    with explained():
        asyncio.run(serve())


@command.command("mps", short_help="Keep the GPU's MPS daemon running.")
@_SERVER
@_RUN_DIRECTORY
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def mps(*, server: str, run_directory: Path, verbose: bool) -> None:
    """Keep the MPS control daemon of one GPU running, until stopped.

    It runs in the other container of the server Pod. It waits until the agent reports which GPU to
    use; after that it does not need the agent.
    """
    from partita.import_trim import leave_out_unused

    leave_out_unused()
    import asyncio

    from partita.agent.mps.daemon import MPSDaemon
    from partita.agent.paths import Paths
    from partita.agent.times import AgentTimes
    from partita.cli.run_until_stopped import stop_on_signals
    from partita.garbage_collection import collect_often
    from partita.process.logs import configure_logs

    configure_logs(verbose=verbose)
    collect_often()

    async def serve() -> None:
        paths = Paths(server, run_directory)
        await MPSDaemon(paths, stop_on_signals(), AgentTimes()).run()

    asyncio.run(serve())
