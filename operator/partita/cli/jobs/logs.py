"""`partita logs`: what a job's program prints, whichever of its Pods it is in."""

from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job, job_options
from partita.cli.options import kubeconfig_option

if TYPE_CHECKING:
    from partita.models import Attempt, SharedGPUJob

__all__ = ["command"]


@click.command("logs", short_help="Print what a job's program says.")
@job_options
@click.option("--follow", "-f", is_flag=True, help="Go on until the program ends.")
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="NUMBER", help="Which start; else the last."
)
@click.option("--container", "-c", metavar="NAME", help="Which container; else the first.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@kubeconfig_option
def command(
    *,
    job: str,
    namespace: str | None,
    follow: bool,
    attempt: int | None,
    container: str | None,
    tail: int | None,
    kubeconfig: str | None,
) -> None:
    """Print the log of JOB's last attempt.

    A Pod that is gone took its log with it; of its end, the attempt's message is left.

    \b
    Examples:
      partita logs train-7 -n team-a --follow
      partita logs team-a/train-7 --attempt 1 --tail 20
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()

    async def read() -> None:
        from partita.cli.connection import open_cluster, readable
        from partita.kube.errors import InvalidError, NotFoundError
        from partita.models import SharedGPUJob

        async with open_cluster(kubeconfig) as kube:
            found = readable(SharedGPUJob, await find_job(kube, job, namespace, kubeconfig))
            chosen = _chosen(found, attempt)
            names = [str(c["name"]) for c in found.spec.template.unpack().containers]
            if container is not None and container not in names:
                raise terminal.UserError(
                    f"{found.key} has no container {container} (it has: {', '.join(names)})"
                )
            lines = kube.log(
                chosen.pod,
                found.metadata.namespace,
                container or names[0],
                follow=follow,
                tail=tail,
            )
            try:
                async for chunk in lines:
                    terminal.raw(chunk)
            except NotFoundError as error:
                raise terminal.UserError(_gone(chosen)) from error
            except InvalidError as error:
                raise terminal.UserError(f"{chosen.pod} has no log yet: {error.message}") from error

    try:
        run_until_stopped(read())
    except Stopped:
        return


def _chosen(job: "SharedGPUJob", number: int | None) -> "Attempt":
    attempts = {a.number: a for a in job.status.attempts}
    if not attempts:
        raise terminal.UserError(
            f"{job.key} has not started yet: `partita explain {job.key}` says why"
        )
    if number is not None and number not in attempts:
        there = ", ".join(map(str, attempts))
        raise terminal.UserError(f"{job.key} has no attempt {number} (it has: {there})")
    return attempts[number if number is not None else max(attempts)]


def _gone(attempt: "Attempt") -> str:
    ended = f"; it ended as {attempt.outcome.value}" if attempt.outcome else ""
    said = f": {attempt.message}" if attempt.message else ""
    return f"Pod {attempt.pod} is gone, and its log with it{ended}{said}"
