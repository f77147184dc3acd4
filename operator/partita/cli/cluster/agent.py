"""`partita agent`: the process on a GPU's node, in the server Pod."""

from pathlib import Path

import click

from partita.cli.options import kubeconfig_option

__all__ = ["command"]

_SERVER = click.option(
    "--server",
    envvar="PARTITA_SERVER",
    show_envvar=True,
    required=True,
    metavar="NAME",
    help="The GPUServer.",
)
_RUN_DIRECTORY = click.option(
    "--run-directory",
    envvar="PARTITA_RUN_DIRECTORY",
    show_envvar=True,
    type=click.Path(path_type=Path),
    default="/run/partita",
    show_default=True,
    help="Folder that agent, MPS and jobs share. It is a folder of the node, with the same path "
    "in every Pod.",
)


@click.group("agent", short_help="Serve one GPU on its node.", invoke_without_command=True)
@click.pass_context
@kubeconfig_option
@click.option(
    "--server",
    envvar="PARTITA_SERVER",
    show_envvar=True,
    metavar="NAME",
    help="The GPUServer.",
)
@click.option(
    "--mode",
    envvar="PARTITA_MODE",
    show_envvar=True,
    type=click.Choice(["MPS", "TimeSlicing", "Exclusive"]),
    default="MPS",
    show_default=True,
    help="How jobs share the GPU.",
)
@click.option(
    "--max-jobs",
    envvar="PARTITA_MAX_JOBS",
    show_envvar=True,
    type=click.IntRange(1, 128),
    default=16,
    show_default=True,
    help="Most jobs on the GPU at the same time.",
)
@click.option(
    "--device-injection",
    envvar="PARTITA_DEVICE_INJECTION",
    show_envvar=True,
    type=click.Choice(["Auto", "CDI", "RuntimeClass"]),
    default="Auto",
    show_default=True,
    help="How the GPU's device files reach the jobs.",
)
@click.option(
    "--node", envvar="PARTITA_NODE", show_envvar=True, default="", help="This node's name."
)
@click.option(
    "--pod", envvar="PARTITA_POD", show_envvar=True, default="", help="The server Pod's name."
)
@click.option(
    "--namespace",
    envvar="PARTITA_NAMESPACE",
    show_envvar=True,
    default="partita-system",
    show_default=True,
    help="The server Pod's namespace.",
)
@click.option(
    "--metrics-port",
    envvar="PARTITA_METRICS_PORT",
    show_envvar=True,
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port of /metrics; 0 serves none.",
)
@click.option(
    "--keep-compute-mode",
    envvar="PARTITA_KEEP_COMPUTE_MODE",
    show_envvar=True,
    is_flag=True,
    help="Do not change the GPU's compute mode. A program that does not find MPS then runs "
    "without a limit.",
)
@click.option(
    "--kubelet-directory",
    envvar="PARTITA_KUBELET_DIRECTORY",
    show_envvar=True,
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet",
    show_default=True,
    help="Kubelet's folder, with the sockets of kubelet and its plugins.",
)
@_RUN_DIRECTORY
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def command(
    ctx: click.Context,
    *,
    kubeconfig: str | None,
    server: str | None,
    mode: str,
    max_jobs: int,
    device_injection: str,
    node: str,
    pod: str,
    namespace: str,
    metrics_port: int,
    keep_compute_mode: bool,
    kubelet_directory: Path,
    run_directory: Path,
    verbose: bool,
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
    from typing import cast

    from partita.agent.dra.sockets import DriverSockets
    from partita.agent.logs import configure_logs
    from partita.agent.main import run_agent
    from partita.agent.paths import Paths
    from partita.agent.settings import AgentSettings
    from partita.cli.connection import explained
    from partita.cli.run_until_stopped import stop_on_signals
    from partita.models import SharingMode
    from partita.pods.allocation import DeviceInjection

    configure_logs(verbose=verbose)
    settings = AgentSettings(
        server=server,
        mode=SharingMode(mode),
        max_jobs=max_jobs,
        node=node,
        pod=pod or server,
        namespace=namespace,
        injection=cast("DeviceInjection", device_injection),
        metrics_port=metrics_port,
        keep_compute_mode=keep_compute_mode,
        paths=Paths(server, run_directory),
        driver_sockets=DriverSockets(kubelet_directory),
        pod_resources=kubelet_directory / "pod-resources" / "kubelet.sock",
    )

    async def serve() -> None:
        await run_agent(settings, stop_on_signals(), kubeconfig)

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

    from partita.agent.logs import configure_logs
    from partita.agent.mps.daemon import MPSDaemon
    from partita.agent.paths import Paths
    from partita.agent.times import AgentTimes
    from partita.cli.run_until_stopped import stop_on_signals

    configure_logs(verbose=verbose)

    async def serve() -> None:
        paths = Paths(server, run_directory)
        await MPSDaemon(paths, stop_on_signals(), AgentTimes()).run()

    asyncio.run(serve())
