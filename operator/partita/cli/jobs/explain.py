"""`partita explain`: why a job waits or where it runs, and what each policy would do with it."""

from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job, job_options
from partita.cli.options import kubeconfig_option, output_option

if TYPE_CHECKING:
    from partita.cli.connection import Lists
    from partita.cli.jobs.ask_policies import PolicyAnswer
    from partita.models import SharedGPUJob

__all__ = ["command"]

_ORIGINS = {
    "waits": "What each policy would do now",
    "runs": "Were it still waiting, each policy would now",
    "suspended": "Were it not suspended, each policy would now",
}
"""Heading above the policies' answers, by how the job stands."""


@click.command("explain", short_help="Say why a job waits or where it runs.")
@job_options
@kubeconfig_option
@output_option
def command(*, job: str, namespace: str | None, kubeconfig: str | None, output: str) -> None:
    """Say why JOB waits or where it runs, and what each policy would do with it.

    JOB is a SharedGPUJob, by its name or as NAMESPACE/NAME. Its attempts, its neighbours and its
    place in the queue come from the cluster; then one scheduling cycle is run in memory with each
    policy that is installed, on the cluster as it is, by the operator's own code. Nothing is
    written.

    Of each attempt it says how long it waited, how long it took to start, how long its program
    then ran before it used the GPU (known once it has ended), and how long it ran in all.

    \b
    Examples:
      partita explain train-7 -n team-a
      partita explain team-a/train-7 --output json | jq .policies
    """  # noqa: D301
    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    try:
        found, verdicts, note = run_until_stopped(_explain(job, namespace, kubeconfig))
    except Stopped:
        return
    if output == "json":
        terminal.dump(_json(found, verdicts))
        return
    from partita.cli.jobs.explanation import explanation

    terminal.display(explanation(found, verdicts, _ORIGINS[_stands(found)]))
    if note:
        terminal.say(note)


async def _explain(
    name: str, namespace: str | None, kubeconfig: str | None
) -> "tuple[SharedGPUJob, list[PolicyAnswer], str]":
    from datetime import UTC, datetime

    from partita.cli.connection import open_cluster, read_lists, readable, state_of
    from partita.cli.jobs.ask_policies import ask_policies, put_back
    from partita.kube.errors import ForbiddenError
    from partita.models import SharedGPUJob

    async with open_cluster(kubeconfig) as kube:
        body = await find_job(kube, name, namespace, kubeconfig)
        job = readable(SharedGPUJob, body)
        if job.status.phase is not None and job.status.phase.finished:
            return job, [], ""
        try:
            lists: Lists = await read_lists(kube)
        except ForbiddenError as error:
            return job, [], f"The policies were not asked: {error.message}"
        uid = job.metadata.uid
        if _stands(job) != "waits":
            lists = put_back(lists, uid)
        state = state_of(lists)
        if uid not in state.jobs:
            return job, [], "The policies were not asked: the job has just gone."
        return job, await ask_policies(state, uid, datetime.now(UTC)), ""


def _stands(job: "SharedGPUJob") -> str:
    from partita.models import Phase

    if job.spec.suspend:
        return "suspended"
    return "runs" if job.status.phase in {Phase.ASSIGNED, Phase.RUNNING} else "waits"


def _json(job: "SharedGPUJob", verdicts: "list[PolicyAnswer]") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "partition": job.spec.partition,
        "status": job.status.dump(),
        "policies": [asdict(verdict) for verdict in verdicts],
    }
