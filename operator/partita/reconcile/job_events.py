"""The Events of a job's normal life: that an attempt started or ended, and that the job finished.

`Scheduled` is emitted where it is known which policy chose the GPU (`partita.commit.committer`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from partita.models import Outcome, Phase, SharedGPUJob
from partita.reconcile.lifecycle import Plan

__all__ = ["JobEvent", "events_of"]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What `kubectl describe` shows about a job."""

    reason: str
    message: str
    warning: bool = False


def events_of(job: SharedGPUJob, plan: Plan) -> Iterator[JobEvent]:
    """Return the Events for what the job's status does not contain yet.

    An operator that is restarted before it wrote the status emits them once more.
    """
    known = {attempt.number: attempt for attempt in job.status.attempts}
    for attempt in plan.attempts:
        before = known.get(attempt.number)
        if attempt.start_time and (before is None or before.start_time is None):
            yield JobEvent("Started", f"attempt {attempt.number} runs in Pod {attempt.pod}")
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
