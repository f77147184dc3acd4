"""Explains a SharedGPUJob."""

from datetime import UTC, datetime
from typing import Any

from partita.cli import terminal
from partita.cli.as_data import as_data
from partita.cli.cluster_state import read_visible, state_of
from partita.cli.connection import open_cluster
from partita.cli.explain.target import ExplainTarget
from partita.cli.jobs.find_job import find_job
from partita.cli.options import Cluster
from partita.console.ask_policies import (
    PolicyAnswer,
    Slowdown,
    ask_policies,
    predicted_slowdown,
    put_back,
)
from partita.kube.client import Kube
from partita.kube.operator_lease import check_operator
from partita.models import Phase, SharedGPUJob
from partita.models.partition_status import GPUSummary

__all__ = ["NOT_ASKED", "explain_job"]

NOT_ASKED = "The policies were not asked, and no slowdown is predicted: you may not list"
"""Said of what a user may not list, whose names follow."""

_HEADINGS = {
    "waits": "What each policy would do now",
    "runs": "What each policy would do now if the job were still waiting",
    "suspended": "What each policy would do now if the job were not suspended",
}
"""Heading above the policies' answers, by the state of the job."""


async def explain_job(target: ExplainTarget, cluster: Cluster, output: str) -> None:
    """Print why a job waits or where it runs, and what each policy would do with it."""
    async with open_cluster(*cluster) as kube:
        job = await find_job(kube, target.name, cluster)
        answers, gpus, slowdown, notes = await _look(kube, job)
    if output == "table":
        from partita.cli.explain.job_text import job_text

        terminal.display(job_text(job, answers, _HEADINGS[_stands(job)], gpus, slowdown))
    else:
        terminal.dump(_data(job, answers, gpus, slowdown), output)
    for note in notes:
        terminal.warn(note)


async def _look(
    kube: Kube, job: SharedGPUJob
) -> tuple[list[PolicyAnswer], tuple[GPUSummary, ...], Slowdown | None, list[str]]:
    """Return the policies' answers, the partition's GPUs, the slowdown, and what is missing."""
    if job.status.phase is not None and job.status.phase.finished:
        return [], (), None, []
    problem = await check_operator(kube)
    notes = [problem] if problem else []
    lists, missing = await read_visible(kube, job.metadata.namespace)
    if missing:
        notes.append(f"{NOT_ASKED} {', '.join(missing)}.")
        partition = state_of(lists).partitions.get(job.spec.partition)
        return [], partition.status.gpu_summary if partition else (), None, notes
    uid, now = job.metadata.uid, datetime.now(UTC)
    slowdown = None
    if _stands(job) != "waits":
        slowdown = predicted_slowdown(uid, state_of(lists))
        lists = put_back(lists, uid)
    state = state_of(lists)
    partition = state.partitions.get(job.spec.partition)
    gpus = partition.status.gpu_summary if partition is not None else ()
    if uid not in state.jobs:
        notes.append("The policies were not asked: the job was deleted meanwhile.")
        return [], gpus, slowdown, notes
    return await ask_policies(state, uid, now), gpus, slowdown, notes


def _stands(job: SharedGPUJob) -> str:
    if job.spec.suspend:
        return "suspended"
    return "runs" if job.status.phase in {Phase.ASSIGNED, Phase.RUNNING} else "waits"


def _data(
    job: SharedGPUJob,
    answers: list[PolicyAnswer],
    gpus: tuple[GPUSummary, ...],
    slowdown: Slowdown | None,
) -> dict[str, Any]:
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "partition": job.spec.partition,
        "status": as_data(job.status),
        "slowdown": as_data(slowdown),
        "policies": as_data(answers),
        "gpus": as_data(gpus),
    }
