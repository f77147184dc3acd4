"""Pods that the API server did not take, and until when their jobs wait.

A job whose Pod is refused gives its allocation back and waits, each time twice as long: a quota or
an admission policy may change, a webhook may come back. Only a Pod that Kubernetes itself calls
invalid waits for another `spec`. When a webhook fails, all jobs of the namespace wait, because
each of their Pods would hold a GPU for as long as the webhook takes to fail.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from partita.models import SharedGPUJob
from partita.reconcile import attempts
from partita.reconcile.reasons import Reason, Why

__all__ = ["PodRejection", "PodRejections"]


@dataclass(frozen=True, slots=True)
class PodRejection:
    """The API server did not take a Pod."""

    why: Why
    generation: int
    """It counts until the job's spec changes,"""
    until: datetime | None = None
    """or until then."""
    times: int = 1
    """How often in a row."""

    def holds(self, generation: int, now: datetime) -> bool:
        """Tell whether the job still waits for it."""
        return self.generation == generation and (self.until is None or self.until > now)


class PodRejections:
    """The refusals of all jobs, by job UID and by namespace."""

    def __init__(self) -> None:
        self._jobs: dict[str, PodRejection] = {}
        self._namespaces: dict[str, PodRejection] = {}

    def note(self, job: SharedGPUJob, why: Why, now: datetime) -> None:
        """Note that the API server did not take a job's Pod."""
        uid, namespace, generation = job.metadata.uid, job.metadata.namespace, 0
        if why.reason is Reason.WEBHOOK_FAILED:
            before = self._namespaces.get(namespace)
            if before is None or not before.holds(generation, now):  # else of the same moment
                self._namespaces[namespace] = _next(before, why, generation, now)
        generation = job.metadata.generation
        self._jobs[uid] = (
            PodRejection(why, generation)
            if why.reason is Reason.INVALID_SPEC
            else _next(self._jobs.get(uid), why, generation, now)
        )

    def created(self, job: SharedGPUJob) -> None:
        """Note that the API server took a job's Pod."""
        self._jobs.pop(job.metadata.uid, None)
        self._namespaces.pop(job.metadata.namespace, None)

    def forget(self, uid: str) -> None:
        """Forget a job."""
        self._jobs.pop(uid, None)

    def of(self, job: SharedGPUJob, now: datetime) -> PodRejection | None:
        """Return the refusal for which this job waits, its own or its namespace's."""
        own = self._jobs.get(job.metadata.uid)
        if own is not None and own.holds(job.metadata.generation, now):
            return own
        shared = self._namespaces.get(job.metadata.namespace)
        return shared if shared is not None and shared.holds(0, now) else None


def _next(before: PodRejection | None, why: Why, generation: int, now: datetime) -> PodRejection:
    times = before.times + 1 if before is not None and before.generation == generation else 1
    until = now + timedelta(seconds=attempts.delay(times))
    said = f"{why.message}; next try at {until:%H:%M:%S} UTC"
    return PodRejection(Why(why.reason, said), generation, until, times)
