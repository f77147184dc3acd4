"""`partita retry`, `suspend` and `resume`: change whether a job runs."""

from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job, key_of
from partita.cli.options import Cluster, JobName, cluster_options, job_argument, output_option

if TYPE_CHECKING:
    from partita.console.job_changes import JobChange

__all__ = ["resume", "retry", "suspend"]


@click.command("retry", short_help="Queue a failed job again.")
@job_argument
@cluster_options
@output_option("partita.models:SharedGPUJob", usual="text")
def retry(*, job: JobName, cluster: Cluster, output: str) -> None:
    """Queue JOB again after it has failed. Its retry limits start at zero again.

    It sets the annotation partita.dev/retry. Argo CD and `kubectl annotate` can do the same: each
    new value is one request. The memory measured in earlier attempts is kept.

    \b
    Examples:
      partita retry train-7 -n team-a
      partita retry team-a/train-7
    """  # noqa: D301
    _change(job, cluster, "retry", "is queued again", output)


@click.command("suspend", short_help="Stop a job until it is resumed.")
@job_argument
@cluster_options
@output_option("partita.models:SharedGPUJob", usual="text")
def suspend(*, job: JobName, cluster: Cluster, output: str) -> None:
    """Stop JOB until it is resumed. A running job is ended, and starts again when it is resumed.

    It sets spec.suspend to true. If the job is deployed from Git, change it there instead.

    \b
    Examples:
      partita suspend train-7 -n team-a
      partita suspend team-a/train-7
    """  # noqa: D301
    _change(job, cluster, "suspend", "is suspended", output)


@click.command("resume", short_help="Queue a suspended job again.")
@job_argument
@cluster_options
@output_option("partita.models:SharedGPUJob", usual="text")
def resume(*, job: JobName, cluster: Cluster, output: str) -> None:
    """Queue JOB again after `partita suspend`. It sets spec.suspend to false.

    \b
    Examples:
      partita resume train-7 -n team-a
      partita resume team-a/train-7
    """  # noqa: D301
    _change(job, cluster, "resume", "is queued", output)


def _change(job: JobName, cluster: Cluster, change: "JobChange", done: str, output: str) -> None:
    from partita.cli.run_until_stopped import run_until_stopped

    key, changed = run_until_stopped(_patch(job, cluster, change))
    terminal.say(f"{key} {done}; `partita explain {key}` shows its state")
    if output != "text":
        terminal.dump_object(changed, output)


async def _patch(
    name: JobName, cluster: Cluster, change: "JobChange"
) -> tuple[str, dict[str, Any]]:
    from partita.cli.connection import open_cluster
    from partita.console.job_changes import RefusedChangeError, write_change

    async with open_cluster(*cluster) as kube:
        job = await find_job(kube, name, cluster)
        try:
            return key_of(job), await write_change(kube, change, job)
        except RefusedChangeError as error:
            raise terminal.UserError(str(error)) from error
