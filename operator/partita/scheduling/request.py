"""What a job or a claim asks for, as it is written, before slices, history and growth."""

from collections.abc import Sequence
from dataclasses import dataclass

from partita.models import Attempt, SharedGPUJob
from partita.pods.node_requirements import Needs, read_needs

__all__ = ["Request", "request_of_job"]


@dataclass(frozen=True, slots=True)
class Request:
    """A slice that is asked for; memory in bytes on each GPU."""

    uid: str
    """UID of the job, or of the claim of a Pod that belongs to none."""
    name: str
    """`namespace/name`."""
    namespace: str
    partition: str
    """Name of the partition on whose GPUs it wants a slice."""
    submitted: float
    """When the job or claim was created, in seconds since the epoch."""
    needs: Needs
    """The requirements of its Pod on nodes."""
    application: str = ""
    slice: str = ""
    """The fixed slice that it names; empty if none."""
    memory: int | None = None
    """None if the history of its application determines it."""
    memory_limit: int | None = None
    """None if it may not use more than `memory`."""
    threads: int | None = None
    """Percent of a GPU's threads; None if it names no share."""
    processes: int = 1
    gpus: int = 1
    priority: int = 0
    """The priority that it names, which the partition may cap."""
    duration: float | None = None
    """Expected seconds on an idle GPU; None for those of the history."""
    lasting: bool = False
    """Whether it never ends by itself. Its history then has no duration of its runs."""
    attempts: Sequence[Attempt] = ()
    """Its attempts so far. Those that ran out of memory increase its request, and after GPU faults
    it may have to run alone."""
    growth_percent: int = 0
    """Percent by which its memory grows after an attempt that ran out of it."""
    refused: int | None = None
    """Bytes with which Pods of its application ran out of memory, 0 if none did; None if only its
    own attempts count."""

    @property
    def learns(self) -> bool:
        """Whether the history of its application determines how much memory it asks for."""
        return self.memory is None and not self.slice

    @property
    def follows_history(self) -> bool:
        """Whether its memory may change with the history of its application."""
        return self.learns or self.refused is not None


def request_of_job(job: SharedGPUJob, attempts: Sequence[Attempt] = ()) -> Request:
    """Return what a job asks for after some attempts."""
    spec, created = job.spec, job.metadata.creation_timestamp
    return Request(
        uid=job.metadata.uid,
        name=job.key,
        namespace=job.metadata.namespace,
        partition=spec.partition,
        submitted=created.timestamp() if created else 0.0,
        needs=read_needs(spec.template),
        application=spec.application or "",
        slice=spec.slice or "",
        memory=spec.gpu_memory,
        memory_limit=spec.gpu_memory_limit,
        threads=spec.thread_percent,
        processes=spec.processes,
        gpus=spec.gpus,
        priority=spec.priority,
        duration=spec.expected_duration,
        attempts=attempts,
        growth_percent=spec.retry.out_of_memory.growth_percent,
    )
