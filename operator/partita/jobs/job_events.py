"""The Events of a job's lifecycle: placements, attempts that did not succeed, and the job's end.

That an attempt runs has no Event: status and Pod say it.
"""

from collections.abc import Iterator, Mapping

from partita.claims.actions import PlacementDetails
from partita.jobs.job_allocation import unused_ceiling
from partita.jobs.lifecycle import Plan
from partita.models import Allocation, GPUPartition, Outcome, Phase, SharedGPUJob
from partita.models.events import UserEvent
from partita.scheduling.reasons import gib

__all__ = ["events_of", "placement_events"]


def events_of(job: SharedGPUJob, plan: Plan) -> Iterator[UserEvent]:
    """Return the Events for changes that the job's status does not contain yet.

    If the operator is restarted before the status is written, they are emitted again.
    """
    known = {attempt.number: attempt for attempt in job.status.attempts}
    for attempt in plan.attempts:
        before = known.get(attempt.number)
        if attempt.outcome in {None, Outcome.SUCCEEDED} or (before and before.outcome):
            continue
        message = f"attempt {attempt.number} on {attempt.node or 'no node'}: {attempt.message}"
        yield UserEvent(str(attempt.outcome), message, job, warning=True)
    if not plan.phase.finished or (job.status.phase and job.status.phase.finished):
        return
    if plan.phase is Phase.SUCCEEDED:
        yield UserEvent("Finished", f"attempt {plan.attempts[-1].number} succeeded", job)
    else:
        said = f"the job failed, {plan.reason}: {plan.message}"
        yield UserEvent("Finished", said, job, warning=True)


def placement_events(
    job: SharedGPUJob,
    placed: PlacementDetails,
    allocated: Mapping[str, Allocation],
    partition: GPUPartition | None,
) -> Iterator[UserEvent]:
    """Return the Events about the GPUs that an attempt has got."""
    limit = max((entry.memory_limit or 0 for entry in allocated.values()), default=0)
    amount = f"{placed.amount} (up to {gib(limit)})" if limit else placed.amount
    said = f"attempt {placed.pod.attempt} gets {amount} on {placed.where}"
    yield UserEvent("Scheduled", f"{said}, chosen by policy {placed.policy}", job)
    if partition is not None and (why := unused_ceiling(job, allocated, partition)):
        yield UserEvent("BurstNotAvailable", why, job, warning=True)
