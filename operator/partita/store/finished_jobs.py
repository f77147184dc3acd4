"""Small records of finished jobs, which stay in the cluster until somebody deletes them.

A job with which nothing is left to do needs a tenth of the memory as a record, and appears in none
of the loops over jobs. If anything of it turns up again, the operator reads the whole job.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, Self

from partita.constants import ANNOTATION_RETRY
from partita.models import Phase, SharedGPUJob
from partita.models.conditions import READABLE
from partita.models.quantities import later, parse_time

__all__ = ["FinishedJob", "FinishedJobs"]

Json = dict[str, Any]

_FINISHED = frozenset(phase.value for phase in Phase if phase.finished)


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that has finished, and whose status says everything."""

    uid: str
    name: str
    namespace: str
    version: int
    partition: str
    phase: str
    expires: datetime | None
    """When to delete it; None for never."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, job: SharedGPUJob) -> Self:
        """Return the record of a job whose status needs no change."""
        meta, ttl = job.metadata, job.spec.ttl_seconds_after_finished
        return cls(
            uid=meta.uid,
            name=meta.name,
            namespace=intern(meta.namespace),
            version=int(meta.resource_version),
            partition=intern(job.spec.partition),
            phase=(job.status.phase or Phase.FAILED).value,
            expires=_expires(job.status.completion_time, ttl, going=bool(meta.deletion_timestamp)),
        )

    @classmethod
    def read(cls, body: Json) -> Self | None:
        """Read the record of a job; None if it has not finished, or its status may change."""
        meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
        retry = (meta.get("annotations") or {}).get(ANNOTATION_RETRY, "")
        completed = status.get("completionTime")
        if (
            status.get("phase") not in _FINISHED
            or status.get("observedGeneration") != meta.get("generation")
            or retry != status.get("retry", "")
            or not completed
            or any(one.get("type") == READABLE for one in status.get("conditions") or ())
        ):
            return None
        ttl, going = spec.get("ttlSecondsAfterFinished"), bool(meta.get("deletionTimestamp"))
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            namespace=intern(meta["namespace"]),
            version=int(meta["resourceVersion"]),
            partition=intern(spec["partition"]),
            phase=intern(status["phase"]),
            expires=_expires(parse_time(completed), ttl, going=going),
        )


def _expires(completed: datetime | None, ttl: int | None, *, going: bool) -> datetime | None:
    return None if completed is None or ttl is None or going else later(completed, ttl)


class FinishedJobs(dict[str, FinishedJob]):
    """The records by UID, and their number by partition and phase."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Number of records, by partition and phase."""

    def take(self, body: Json, *, deleted: bool, known: bool) -> FinishedJob | None:
        """Apply a version of a job, or its deletion; return its record if that is enough.

        Parameters
        ----------
        known
            Whether there is more about the job than a record.
        """
        uid = body["metadata"]["uid"]
        old, version = self.get(uid), int(body["metadata"]["resourceVersion"])
        if old is not None and not deleted and version <= old.version - known:
            return old  # with `known` the same version is read again, for the whole job
        self.discard(uid)
        new = None if deleted or known else FinishedJob.read(body)
        if new is not None:
            self.add(new)
        return new

    def add(self, job: FinishedJob) -> None:
        """Add a record, or replace it by a newer one."""
        self.discard(job.uid)
        self[job.uid] = job
        self.counts[job.partition, job.phase] += 1

    def discard(self, uid: str) -> None:
        """Remove a record, if it exists."""
        old = self.pop(uid, None)
        if old is not None:
            self.counts[old.partition, old.phase] -= 1
            if not self.counts[old.partition, old.phase]:
                del self.counts[old.partition, old.phase]
