"""`partita logs`: the log of a job's program, from the Pod of one of its attempts."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job, key_of
from partita.cli.options import Cluster, JobName, cluster_options, job_argument, output_option

if TYPE_CHECKING:
    from partita.kube.client import Kube
    from partita.kube.errors import KubernetesError

__all__ = ["PrintedLog", "command"]


class PrintedLog(TypedDict):
    """The log of a container of one attempt."""

    namespace: str
    name: str
    """The job."""
    attempt: int
    pod: str
    container: str
    log: str
    """Bytes that are no UTF-8 are replaced."""


@click.command("logs", short_help="Print the log of a job's program.")
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the program ends.")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Attempt whose log is printed. By default the last one.",
)
@click.option(
    "--container",
    "-c",
    metavar="NAME",
    help="Container whose log is printed. By default the first one.",
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="LINES", help="Print only the last lines."
)
@cluster_options
@output_option("partita.cli.jobs.logs:PrintedLog", usual="text")
def command(
    *,
    job: JobName,
    follow: bool,
    attempt: int | None,
    container: str | None,
    tail: int | None,
    cluster: Cluster,
    output: str,
) -> None:
    """Print the log of JOB's last attempt.

    A log is deleted together with its Pod. The message of the attempt remains: `partita explain`
    shows it.

    \b
    Examples:
      partita logs train-7 -n team-a --follow
      partita logs team-a/train-7 --attempt 1 --tail 20
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    if follow and output != "text":
        raise click.UsageError("--follow prints text: leave out --output, or --follow")

    async def read() -> None:
        from partita.cli.connection import open_cluster
        from partita.kube.errors import ForbiddenError, KubernetesError

        async with open_cluster(*cluster) as kube:
            found = await find_job(kube, job, cluster)
            chosen = _chosen(found, attempt)
            pod = found["spec"]["template"].get("spec") or {}
            names = [str(c["name"]) for c in pod.get("containers") or ()]
            if container is not None and container not in names:
                raise terminal.UserError(
                    f"{key_of(found)} has no container {container} (it has: {', '.join(names)})"
                )
            which, pod_name = container or names[0], str(chosen.get("pod", ""))
            namespace = found["metadata"]["namespace"]
            lines = kube.log(pod_name, namespace, which, follow=follow, tail=tail)
            try:
                if output == "text":
                    async for chunk in lines:
                        terminal.raw(chunk)
                else:
                    log = b"".join([chunk async for chunk in lines])
                    terminal.dump(_data(found, chosen, which, log), output)
            except KubernetesError as error:
                if isinstance(error, ForbiddenError) or not error.status:
                    raise
                raise terminal.UserError(
                    await _missing(kube, chosen, namespace, which, error)
                ) from error

    run_until_stopped(read())


def _data(job: dict[str, Any], attempt: dict[str, Any], container: str, log: bytes) -> PrintedLog:
    return {
        "namespace": job["metadata"]["namespace"],
        "name": job["metadata"]["name"],
        "attempt": attempt["number"],
        "pod": attempt.get("pod", ""),
        "container": container,
        "log": log.decode(errors="replace"),
    }


def _chosen(job: dict[str, Any], number: int | None) -> dict[str, Any]:
    """Return the attempt of this number, or the last one."""
    key = key_of(job)
    attempts = {a["number"]: a for a in (job.get("status") or {}).get("attempts") or ()}
    if not attempts:
        raise terminal.UserError(
            f"{key} has not started yet: `partita explain {key}` shows the reason"
        )
    if number is not None and number not in attempts:
        there = ", ".join(map(str, attempts))
        raise terminal.UserError(f"{key} has no attempt {number} (it has: {there})")
    found: dict[str, Any] = attempts[number if number is not None else max(attempts)]
    return found


async def _missing(
    kube: "Kube", attempt: dict[str, Any], namespace: str, container: str, error: "KubernetesError"
) -> str:
    """Return why the log is missing: the Pod was deleted, or it exists and has no log."""
    from partita.kube.client import PODS
    from partita.kube.errors import NotFoundError

    pod = str(attempt.get("pod", ""))
    try:
        await kube.get(PODS, pod, namespace)
    except NotFoundError:
        ended = attempt.get("outcome")
        outcome = f"; the attempt ended as {ended}" if ended else ""
        message = f": {said}" if (said := attempt.get("message")) else ""
        return f"Pod {namespace}/{pod} is gone, and its log with it{outcome}{message}"
    return (
        f"Pod {namespace}/{pod} exists, but the API server has no log of its container "
        f"{container}: {error.message}. Try `kubectl logs -n {namespace} {pod} -c {container}`"
    )
