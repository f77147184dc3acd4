"""What uses or waits for GPU memory, as users see it: a SharedGPUJob, or a Pod with a claim."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from partita.models import Assignment, Attempt, EstimatedStart, Phase, SharedGPUJob
from partita.models.quantities import format_request

if TYPE_CHECKING:
    from partita_policies import types as policy

__all__ = ["WorkloadPhase", "WorkloadPlace", "WorkloadView", "job_view"]

WorkloadPhase = Literal["Gated", "Queued", "Assigned", "Running", "Ending"]
"""`Gated`: another controller has not admitted the Pod yet. `Queued`: it waits for a slice.
`Assigned`: it has a slice, and no container runs yet. `Ending`: it has ended, and its slice is not
released yet."""


@dataclass(frozen=True, slots=True)
class WorkloadPlace:
    """The slice of a workload, and its use; memory in bytes."""

    server: str
    """The GPUServer; several are separated by commas."""
    node: str
    since: datetime | None
    """When it was allocated; of a job, when its attempt started."""
    used: int | None = None
    """Memory that it uses now; None if it is not measured."""
    peak: int | None = None
    utilization: int | None = None
    """Percent of the time in which its kernels run; None if it is not measured."""
    idle_since: datetime | None = None
    """Since when none of its kernels has run; None if one ran in the last minute."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A job, or a Pod with a claim; memory in bytes."""

    uid: str
    """UID of the job, or of the claim of a Pod that belongs to none."""
    namespace: str
    name: str
    """Name of the job or Pod; of the claim if it has no Pod."""
    pod: str
    """Name of its Pod; empty if it has none."""
    claim: str
    """Its claim; empty for a job, and for a Pod with Partita's scheduling gate alone."""
    partition: str
    application: str
    """Its application: of a job, the name in its spec; of a Pod, kind and name of its controller,
    or the name in its annotation."""
    lasting: bool
    """Whether it never ends by itself."""
    phase: WorkloadPhase | Phase
    reason: str
    message: str
    created: datetime | None
    position: int | None = None
    expected: EstimatedStart | None = None
    """When it is expected to start, if it waits for room."""
    memory: int | None = None
    """What is allocated to it, or what it asks for; None if it asks for no amount."""
    memory_limit: int | None = None
    slice: str = ""
    """The fixed slice that it asks for; empty if none."""
    learns: bool = False
    """Whether it asks for what its application has used, and that amount was not looked up."""
    gpus: int = 1
    threads: int | None = None
    """Percent of the GPU's threads, likewise."""
    priority: int = 0
    place: WorkloadPlace | None = None
    """Where its slice is; None if it has none."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_job(self) -> bool:
        """Whether it is a SharedGPUJob."""
        return isinstance(self.phase, Phase)

    @property
    def pod_of(self) -> str:
        """What its Pod belongs to: its application, or `Pod`; empty for a job."""
        return "" if self.is_job else self.application or "Pod"

    @property
    def why(self) -> str:
        """Reason and message as one text."""
        return ": ".join(filter(None, [self.reason, self.message]))

    @property
    def ended(self) -> bool:
        """Whether it is a job that has finished."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def waits(self) -> bool:
        """Whether it has no slice, and has not ended."""
        return self.phase in {"Gated", "Queued", "Suspended"}

    @property
    def held_back(self) -> bool:
        """Whether it does not wait for a GPU, because somebody has to let it wait first."""
        return self.phase in {"Gated", "Suspended"}

    @property
    def asks(self) -> str:
        """What it asks for, as a short text."""
        if self.learns:
            return "as learnt"
        return format_request(self.memory, self.slice, self.gpus, self.memory_limit)

    @property
    def amount(self) -> str:
        """The memory that is allocated to it, or that it asks for, as a short text."""
        return format_request(self.memory, None, self.gpus, self.memory_limit)


def job_view(
    job: SharedGPUJob, granted: "Assignment | Attempt | policy.Job | None" = None
) -> WorkloadView:
    """Return a job with the memory that it has, had or would get, or that its spec asks for."""
    spec, status = job.spec, job.status
    assigned = status.assignment
    return WorkloadView(
        uid=job.metadata.uid,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        pod=assigned.pod if assigned is not None else "",
        claim="",
        partition=spec.partition,
        application=spec.application or "",
        lasting=False,
        phase=status.phase or Phase.QUEUED,
        reason=status.reason,
        message=status.message,
        created=job.metadata.creation_timestamp,
        position=status.queue_position,
        expected=status.estimated_start,
        memory=spec.gpu_memory if granted is None else granted.memory or None,
        memory_limit=spec.gpu_memory_limit if granted is None else granted.memory_limit or None,
        slice=spec.slice or "",
        learns=granted is None and bool(spec.application) and not (spec.gpu_memory or spec.slice),
        gpus=spec.gpus,
        threads=spec.thread_percent if assigned is None else assigned.thread_percent,
        priority=spec.priority,
        place=_place(job),
    )


def _place(job: SharedGPUJob) -> WorkloadPlace | None:
    status = job.status
    assigned = status.assignment
    if assigned is None:
        return None
    current = next((one for one in status.attempts if one.number == assigned.attempt), None)
    since = job.metadata.creation_timestamp
    if current is not None:
        since = current.start_time or current.booked_time or since
    where = ", ".join(assigned.servers)
    return WorkloadPlace(where, assigned.node, since, peak=status.peak_memory)
