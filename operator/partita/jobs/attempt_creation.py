"""Creates the claim and the Pod of a job that a cycle has chosen, or records why not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from partita.jobs.attempt_pods import AttemptPods
from partita.jobs.creation import NameTaken, RetryLater
from partita.jobs.job_allocation import job_allocation
from partita.jobs.job_reconciler import JobReconciler
from partita.models import SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.scheduling.reasons import WaitingReason
from partita.store.state import State
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["AttemptCreation"]


@dataclass(frozen=True, slots=True)
class AttemptCreation:
    """Creates the claims and Pods of chosen jobs.

    Parameters
    ----------
    now
        The clock.
    """

    state: State
    jobs: JobReconciler
    attempts: AttemptPods
    now: Callable[[], datetime]

    def existing(self, job: Job, gpus: Sequence[str]) -> PodView | None:
        """Return the Pod of a job's next attempt if nothing is left to create.

        That needs no task: on a slow machine each cycle would be over before the task is.
        """
        try:
            planned = self._planned(job, gpus)
            return self.attempts.existing(*planned) if planned is not None else None
        except Exception:  # noqa: BLE001 - `create` meets the same bug, and reports it
            return None

    async def create(self, job: Job, gpus: Sequence[str]) -> PodView | RetryLater | None:
        """Create what is missing for a job's next attempt on these GPUs; return its Pod.

        The job's key must be in processing.

        Returns
        -------
        PodView or RetryLater or None
            None if it cannot be created before the job is reconciled again.
        """
        try:
            return await self._create(job, gpus)
        except Exception as error:  # noqa: BLE001 - a bug that affects one job must not stop the others
            structlog.get_logger().exception("pod not created", part="pods", job=job.name)
            return RetryLater(str(error))

    async def _create(self, job: Job, gpus: Sequence[str]) -> PodView | RetryLater | None:
        if (planned := self._planned(job, gpus)) is None:
            return None
        found, wanted = planned
        made = await self.attempts.create(found, wanted, job.thread_percent)
        match made:
            case PodView():
                self.jobs.created(found)
                # Another controller has not admitted it: it gets a GPU in a later cycle.
                return None if made.other_gates else made
            case RetryLater():
                return made
            case NameTaken():
                self.jobs.name_taken(job.id, wanted.attempt)
            case WaitingReason() as why:
                self.jobs.refuse(found, why, self.now())
        return None

    def _planned(self, job: Job, gpus: Sequence[str]) -> tuple[SharedGPUJob, JobAllocation] | None:
        """Return a job, and the allocation for which the Pod of its next attempt is created."""
        found = self.state.jobs.get(job.id)
        servers = [self.state.servers[name] for name in gpus if name in self.state.servers]
        partition = self.state.partitions.get(self.jobs.partition_of(job.id))
        if found is None or partition is None or len(servers) < len(gpus):
            return None
        attempt = self.jobs.attempt_of(job.id)
        return found, job_allocation(found, attempt, job, servers, partition)
