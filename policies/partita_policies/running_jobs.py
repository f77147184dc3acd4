"""The same job while it waits and once it runs."""

from dataclasses import fields
from operator import attrgetter

from partita_policies.types import Job, RunningJob

__all__ = ["running_job", "waiting_job"]

_SHARED = [f.name for f in fields(RunningJob) if f.name not in {"job", "started"}]
_VALUES = attrgetter(*_SHARED)


def running_job(job: Job, started: float | None = None) -> RunningJob:
    """Return a job as it runs, with the memory that it asks for."""
    return RunningJob(job.id, started=started, **dict(zip(_SHARED, _VALUES(job), strict=True)))


def waiting_job(run: RunningJob, *, gpus: int, submitted: float) -> Job:
    """Return a running job as one that waits for so many GPUs."""
    shared = dict(zip(_SHARED, _VALUES(run), strict=True))
    return Job(id=run.job, name=run.job, gpus=gpus, submitted=submitted, **shared)
