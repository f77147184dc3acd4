"""`partita explain`: why a job waits or where it runs, and what each policy would do."""

from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import find_job
from partita.cli.options import (
    Cluster,
    JobName,
    cluster_options,
    job_argument,
    output_option,
)

if TYPE_CHECKING:
    from partita.cli.connection import Lists
    from partita.cli.jobs.ask_policies import PolicyAnswer
    from partita.models import SharedGPUJob
    from partita.models.partition_status import GPUSummary

__all__ = ["command"]

_HEADINGS = {
    "waits": "What each policy would do now",
    "runs": "What each policy would do now if the job were still waiting",
    "suspended": "What each policy would do now if the job were not suspended",
}
"""Heading above the policies' answers, by the state of the job."""


@click.command("explain", short_help="Show why a job waits or where it runs.")
@job_argument
@cluster_options
@output_option()
def command(*, job: JobName, cluster: Cluster, output: str) -> None:
    """Show why JOB waits or where it runs, and what each policy would do with it.

    JOB is a SharedGPUJob. Its attempts, its neighbours and its position in the queue are read from
    the cluster. Then one scheduling cycle is computed in memory with each installed policy, on the
    current state of the cluster and with the operator's own code. Nothing is written.

    Of each attempt it shows how long the job waited, how long its Pod took to start, how long the
    program ran before it used the GPU (known once it has ended), and how long it ran in all.

    \b
    Examples:
      partita explain train-7 -n team-a
      partita explain team-a/train-7 -o json | jq .policies
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    terminal.quiet_logs()
    found, answers, gpus, notes = run_until_stopped(_explain(job, cluster))
    if output == "table":
        from partita.cli.jobs.explanation import explanation

        terminal.display(explanation(found, answers, _HEADINGS[_stands(found)], gpus))
    else:
        terminal.dump(_data(found, answers, gpus), output)
    for note in notes:
        terminal.warn(note)


async def _explain(
    name: JobName, cluster: Cluster
) -> "tuple[SharedGPUJob, list[PolicyAnswer], tuple[GPUSummary, ...], list[str]]":
    """Return the job, the policies' answers, its partition's GPUs, and what is missing."""
    from datetime import UTC, datetime

    from partita.cli.connection import open_cluster, read_lists, state_of
    from partita.cli.jobs.ask_policies import ask_policies, put_back
    from partita.kube.errors import ForbiddenError
    from partita.kube.operator_lease import check_operator

    async with open_cluster(*cluster) as kube:
        job = await find_job(kube, name, cluster)
        if job.status.phase is not None and job.status.phase.finished:
            return job, [], (), []
        problem = await check_operator(kube)
        notes = [problem] if problem else []
        try:
            lists: Lists = await read_lists(kube)
        except ForbiddenError as error:
            return job, [], (), [*notes, f"The policies were not asked: {error.message}"]
        uid = job.metadata.uid
        if _stands(job) != "waits":
            lists = put_back(lists, uid)
        state = state_of(lists)
        partition = state.partitions.get(job.spec.partition)
        gpus = partition.status.gpu_summary if partition is not None else ()
        if uid not in state.jobs:
            missing = "The policies were not asked: the job was deleted meanwhile."
            return job, [], gpus, [*notes, missing]
        return job, await ask_policies(state, uid, datetime.now(UTC)), gpus, notes


def _stands(job: "SharedGPUJob") -> str:
    from partita.models import Phase

    if job.spec.suspend:
        return "suspended"
    return "runs" if job.status.phase in {Phase.ASSIGNED, Phase.RUNNING} else "waits"


def _data(
    job: "SharedGPUJob", answers: "list[PolicyAnswer]", gpus: "tuple[GPUSummary, ...]"
) -> dict[str, Any]:
    from partita.cli.as_data import as_data

    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "partition": job.spec.partition,
        "status": as_data(job.status),
        "policies": as_data(answers),
        "gpus": as_data(gpus),
    }
