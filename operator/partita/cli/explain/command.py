"""`partita explain`: why a job or workload waits or where it runs, and what slows it down."""

from pathlib import Path

import click

from partita.cli import terminal
from partita.cli.completions import complete_targets
from partita.cli.explain.target import ExplainTarget
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

__all__ = ["command"]


@click.command("explain", short_help="Show why a job or workload waits or where it runs.")
@click.argument("target", metavar="[NAME]", required=False, shell_complete=complete_targets)
@click.option(
    "--filename",
    "-f",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="YAML with jobs or Pods that are not applied yet. - reads stdin.",
)
@click.option(
    "--policies", is_flag=True, help="Show what each installed policy would do with it now, too."
)
@namespace_option
@cluster_options
@output_option("partita.cli.explain.explain:ExplainOutput")
def command(
    *,
    target: str | None,
    filename: Path | None,
    policies: bool,
    namespace: str | None,
    cluster: Cluster,
    output: str,
) -> None:
    """Show why NAME waits or where it runs, what slows it down, and how much memory it needs.

    NAME is a SharedGPUJob. With a kind before it, it is a workload: pod/NAME, claim/NAME, or the
    controller of Pods with claims: deployment, statefulset, daemonset, replicaset, job (batch),
    pytorchjob, raycluster or workflow.

    State, neighbours and position in the queue are read from the cluster. The predicted slowdown is
    shown beside what earlier runs of its application took, as far as agents have measured it.

    With --policies, one scheduling cycle is computed in memory with each installed policy, on the
    current state of the cluster and with the operator's own code. Nothing is written.

    Of each attempt of a job it shows how long the job waited, how long its Pod took to start, how
    long the program ran before it used the GPU (known once it has ended), and how long it ran in
    all. Of a workload it shows what it asks for, where each setting is written, and what to change.

    Of both it shows what to set in a framework that takes a fraction of the GPU, such as vLLM, if
    the image, command or environment names it; -o json has all. With --filename it shows that for
    the jobs and Pods in FILE, on each GPU of their partition.

    \b
    Examples:
      partita explain train-7 -n team-a
      partita explain team-a/train-7 --policies -o json | jq '.[].policies'
      partita explain pod/serve-5f6d8-x2x7k -n team-a
      partita explain deployment/serve -n team-a
      partita explain -f serve.yaml
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    terminal.quiet_logs()
    if target is not None and filename is None:
        from partita.cli.explain.explain import print_explanation

        name = ExplainTarget.read(target, namespace)
        run_until_stopped(print_explanation(name, cluster, output, policies=policies))
    elif filename is not None and target is None and not policies:
        from partita.cli.explain.planned import explain_file

        run_until_stopped(explain_file(filename, cluster, output))
    else:
        raise click.UsageError("write either NAME or --filename FILE (--policies needs NAME)")
