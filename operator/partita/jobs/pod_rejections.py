"""Pods that the API server rejected, and until when their jobs wait.

A job whose Pod is rejected waits, each time twice as long: a quota or an admission policy may
change, or a webhook may recover. Only a job whose Pod Kubernetes itself
rejects as invalid waits for a change of its `spec`. If a webhook fails, all jobs of the namespace
wait, because it would fail for each of their Pods.
"""

from dataclasses import dataclass
from datetime import datetime

from partita.jobs import attempts
from partita.models import SharedGPUJob
from partita.pause import Pause
from partita.scheduling.reasons import Reason, WaitingReason
from partita.times import Times

__all__ = ["PodRejection", "PodRejections"]


@dataclass(frozen=True, slots=True)
class PodRejection:
    """A rejection of a Pod by the API server."""

    why: WaitingReason
    generation: int
    """Generation of the job: the rejection is valid until the spec changes, or `pause` ends."""
    pause: Pause | None = None
    """The backoff; None if only a change of the spec helps."""
    times: int = 1
    """Number of consecutive rejections."""

    def holds(self, generation: int, now: datetime) -> bool:
        """Return whether the job still has to wait because of it."""
        return self.generation == generation and (self.pause is None or self.pause.holds(now))


class PodRejections:
    """The rejections of all jobs, by job UID and by namespace."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._jobs: dict[str, PodRejection] = {}
        self._namespaces: dict[str, PodRejection] = {}

    def note(self, job: SharedGPUJob, why: WaitingReason, now: datetime) -> None:
        """Record that the API server rejected a job's Pod."""
        uid, namespace, generation = job.metadata.uid, job.metadata.namespace, 0
        if why.reason is Reason.WEBHOOK_FAILED:
            before = self._namespaces.get(namespace)
            if before is None or not before.holds(generation, now):  # else the same failure
                self._namespaces[namespace] = self._next(before, why, generation, now)
        generation = job.metadata.generation
        self._jobs[uid] = (
            PodRejection(why, generation)
            if why.reason is Reason.INVALID_SPEC
            else self._next(self._jobs.get(uid), why, generation, now)
        )

    def created(self, job: SharedGPUJob) -> None:
        """Record that the API server accepted a job's Pod."""
        self._jobs.pop(job.metadata.uid, None)
        self._namespaces.pop(job.metadata.namespace, None)

    def forget(self, uid: str) -> None:
        """Remove a job."""
        self._jobs.pop(uid, None)

    def of(self, job: SharedGPUJob, now: datetime) -> PodRejection | None:
        """Return the rejection for which a job waits, its own or its namespace's."""
        own = self._jobs.get(job.metadata.uid)
        if own is not None and own.holds(job.metadata.generation, now):
            return own
        shared = self._namespaces.get(job.metadata.namespace)
        return shared if shared is not None and shared.holds(0, now) else None

    def _next(
        self, before: PodRejection | None, why: WaitingReason, generation: int, now: datetime
    ) -> PodRejection:
        times = before.times + 1 if before is not None and before.generation == generation else 1
        pause = Pause.of(now, attempts.delay(times, self._times))
        said = f"{why.message}; next try at {pause.until:%H:%M:%S} UTC"
        return PodRejection(WaitingReason(why.reason, said), generation, pause, times)
