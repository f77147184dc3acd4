"""The Events of a job's lifecycle: attempts that did not succeed, and the job's end.

That an attempt runs has no Event: status and Pod say it. `Scheduled` is emitted by
`partita.process.placement_events`, which has the name of the policy that chose the GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from partita.jobs.lifecycle import Plan
from partita.models import Outcome, Phase, SharedGPUJob

__all__ = ["JobEvent", "events_of"]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An Event about a job, shown by `kubectl describe`."""

    reason: str
    message: str
    warning: bool = False


def events_of(job: SharedGPUJob, plan: Plan) -> Iterator[JobEvent]:
    """Return the Events for changes that the job's status does not contain yet.

    If the operator is restarted before the status is written, they are emitted again.
    """
    known = {attempt.number: attempt for attempt in job.status.attempts}
    for attempt in plan.attempts:
        before = known.get(attempt.number)
        if attempt.outcome in {None, Outcome.SUCCEEDED} or (before and before.outcome):
            continue
        message = f"attempt {attempt.number} on {attempt.node or 'no node'}: {attempt.message}"
        yield JobEvent(str(attempt.outcome), message, warning=True)
    if not plan.phase.finished or (job.status.phase and job.status.phase.finished):
        return
    if plan.phase is Phase.SUCCEEDED:
        yield JobEvent("Finished", f"attempt {plan.attempts[-1].number} succeeded")
    else:
        yield JobEvent("Finished", f"the job failed, {plan.reason}: {plan.message}", warning=True)
