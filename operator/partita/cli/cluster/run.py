"""`partita run`: the operator."""

from pathlib import Path
from typing import Any

import click

from partita.cli.options import KUBELET_FOLDER, MEMORY, kubeconfig_option, setting
from partita.constants import KUBELET_DIRECTORY

__all__ = ["command"]


@click.command("run", short_help="Run the operator.")
@kubeconfig_option
@setting(
    "--namespace",
    default="partita-system",
    help="Namespace of the operator and its Lease. It must exist.",
)
@click.option(
    "--server-namespace",
    metavar="NAME",
    default="",
    help="Namespace of the server Pods. Pod Security must allow `privileged` there. By default the "
    "operator's namespace.",
)
@setting(
    "--identity",
    envvar="POD_NAME",
    metavar="NAME",
    default="",
    help="Identity of this process in the Lease. By default the host name and the process ID.",
)
@click.option(
    "--lease-duration",
    type=click.FloatRange(min=1),
    default=12.0,
    show_default=True,
    metavar="SECONDS",
    help="Time without a renewal after which another operator takes over.",
)
@setting(
    "--image",
    default="",
    help="Image of the server Pods. By default that of the operator's own Pod, or "
    "partita:latest outside a Pod.",
)
@click.option(
    "--service-account",
    metavar="NAME",
    default="partita-agent",
    show_default=True,
    help="Service account of the server Pods.",
)
@click.option(
    "--server-priority-class",
    metavar="NAME",
    default="",
    help="PriorityClass of the server Pods. By default that of the cluster.",
)
@setting(
    "--kubelet-directory",
    type=KUBELET_FOLDER,
    default=KUBELET_DIRECTORY,
    help="Kubelet's --root-dir on the nodes of the GPUs, such as /var/lib/k0s/kubelet.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Serve /healthz, /readyz and /metrics on this port. By default they are not served.",
)
@setting(
    "--namespace-metrics",
    is_flag=True,
    help="Label the metrics of usage with the namespace, one series for each.",
)
@setting(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Record each decision in this folder, for `partita replay`.",
)
@setting(
    "--record-limit",
    type=MEMORY,
    default="256Mi",
    help="Limit on the size of the recordings. The oldest are deleted first.",
)
@setting(
    "--trace",
    is_flag=True,
    help="Send the life of each job that ends as OpenTelemetry spans over OTLP/HTTP; "
    "OTEL_EXPORTER_OTLP_ENDPOINT says where to.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log how kopf handles each event, too.")
def command(*, kubeconfig: str | None, trace: bool, verbose: bool, **settings: Any) -> None:
    """Run the operator until it is stopped.

    The operator divides GPUs into slices, queues the jobs, lets each partition's policy decide
    which jobs share a GPU, and starts the jobs as Pods. Several operators can run at the same time:
    one leads, the others wait to take over. The log goes to stderr, one line for each decision; it
    is JSON unless stderr is a terminal.

    \b
    Example, against the embedded API server:
      partita apiserver --kubeconfig-out /tmp/kubeconfig &
      partita nodes --kubeconfig /tmp/kubeconfig &
      kubectl --kubeconfig /tmp/kubeconfig create namespace partita-system
      partita run --kubeconfig /tmp/kubeconfig
    """  # noqa: D301
    from partita.import_trim import leave_out_unused

    leave_out_unused()
    import asyncio

    from partita.cli.connection import explained
    from partita.process.logs import configure_logs
    from partita.process.main import run_operator
    from partita.process.settings import OperatorSettings
    from partita.process.task_shutdown import alone

    configure_logs(verbose=verbose)
    operator = OperatorSettings(**settings)
    with explained():
        if not trace:
            asyncio.run(alone(run_operator(operator, kubeconfig)))
            return
        from partita.process.tracing import tracing

        with tracing() as traces:
            asyncio.run(alone(run_operator(operator, kubeconfig, traces.on_status)))
