"""`partita retry`, `suspend` and `resume`: what people do with a job that is there."""

from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job, job_options
from partita.cli.options import kubeconfig_option
from partita.constants import ANNOTATION_RETRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from partita.models import SharedGPUJob

    Change = Callable[[SharedGPUJob], dict[str, Any]]

__all__ = ["resume", "retry", "suspend"]


@click.command("retry", short_help="Queue a job again that has failed.")
@job_options
@kubeconfig_option
def retry(*, job: str, namespace: str | None, kubeconfig: str | None) -> None:
    """Queue JOB again after it has failed; its limits count anew.

    It sets the annotation partita.dev/retry, which Argo CD and `kubectl annotate` can do as well:
    each new value is one request. What the job has learnt of its memory is kept.

    \b
    Example:
      partita retry train-7 -n team-a
    """  # noqa: D301
    _change(job, namespace, kubeconfig, _retried, "is queued again")


@click.command("suspend", short_help="End a job for now; it keeps its place among jobs.")
@job_options
@kubeconfig_option
def suspend(*, job: str, namespace: str | None, kubeconfig: str | None) -> None:
    """Do not run JOB for now: one that runs is ended, and queued again when it is resumed.

    It sets spec.suspend. Where a Git repository says what the job is, write it there.

    \b
    Example:
      partita suspend train-7 -n team-a
    """  # noqa: D301
    _change(job, namespace, kubeconfig, _suspended, "is suspended")


@click.command("resume", short_help="Let a suspended job run.")
@job_options
@kubeconfig_option
def resume(*, job: str, namespace: str | None, kubeconfig: str | None) -> None:
    """Queue JOB again after `partita suspend`: it unsets spec.suspend.

    \b
    Example:
      partita resume train-7 -n team-a
    """  # noqa: D301
    _change(job, namespace, kubeconfig, _resumed, "is queued")


def _retried(job: "SharedGPUJob") -> dict[str, Any]:
    from datetime import UTC, datetime

    from partita.models import Phase
    from partita.models.quantities import format_time

    if job.status.phase is not Phase.FAILED:
        stands = job.status.phase.value if job.status.phase else "not looked at yet"
        raise terminal.UserError(
            f"{job.key} has not failed, it is {stands}: only a job that failed is retried"
        )
    return {"metadata": {"annotations": {ANNOTATION_RETRY: format_time(datetime.now(UTC))}}}


def _suspended(job: "SharedGPUJob") -> dict[str, Any]:
    _may_run(job)
    if job.spec.suspend:
        raise terminal.UserError(f"{job.key} is suspended already: `partita resume` lets it run")
    return {"spec": {"suspend": True}}


def _resumed(job: "SharedGPUJob") -> dict[str, Any]:
    _may_run(job)
    if not job.spec.suspend:
        raise terminal.UserError(f"{job.key} is not suspended: `partita explain` says more")
    return {"spec": {"suspend": False}}


def _may_run(job: "SharedGPUJob") -> None:
    phase = job.status.phase
    if phase is not None and phase.finished:
        raise terminal.UserError(f"{job.key} has come to its end, it is {phase.value}")


def _change(
    job: str, namespace: str | None, kubeconfig: str | None, change: "Change", done: str
) -> None:
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    try:
        key = run_until_stopped(_patch(job, namespace, kubeconfig, change))
    except Stopped:
        return
    terminal.say(f"{key} {done}; `partita explain {key}` says how it stands")


async def _patch(name: str, namespace: str | None, kubeconfig: str | None, change: "Change") -> str:
    from partita.cli.connection import open_cluster, readable
    from partita.kube.client import JOBS
    from partita.models import SharedGPUJob

    async with open_cluster(kubeconfig) as kube:
        job = readable(SharedGPUJob, await find_job(kube, name, namespace, kubeconfig))
        meta = job.metadata
        # What was judged is what is changed: who came in between is looked at again.
        await kube.patch(
            JOBS,
            meta.name,
            change(job),
            namespace=meta.namespace,
            resource_version=meta.resource_version,
        )
        return job.key
