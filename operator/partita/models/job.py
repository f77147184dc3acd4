"""SharedGPUJob: a program to run once on a slice of a GPU."""

from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.config import JsonDict

from partita.constants import MAX_JOB_NAME
from partita.models.base import (
    ATOMIC,
    Amount,
    Conditions,
    Count,
    Duration,
    Model,
    Quantity,
    Resource,
    Shared,
    StartTimeout,
    Time,
    Word,
    at_most,
    keyed_by,
    rule,
    rules,
)
from partita.models.partition import Name, Percent, Priority
from partita.models.template import PackedTemplate

__all__ = [
    "Assignment",
    "Attempt",
    "Framework",
    "NotStartedRetry",
    "OutOfMemoryRetry",
    "Outcome",
    "Phase",
    "Retry",
    "SharedGPUJob",
    "SharedGPUJobSpec",
    "SharedGPUJobStatus",
]


MAX_SECONDS = 2**31 - 1
"""68 years, the most that a Pod's activeDeadlineSeconds may be (`ValidatePodSpec` in
pkg/apis/core/validation/validation.go)."""

Words = Annotated[tuple[Word, ...], Field(json_schema_extra=at_most(maxItems=64))]
"""One for each GPU of a job."""
Neighbours = Annotated[tuple[Word, ...], Field(json_schema_extra=at_most(maxItems=64 * 128))]
"""Jobs on the same GPUs, at most 128 on each."""


class Framework(StrEnum):
    """Frameworks whose own memory limit is set as well."""

    TENSORFLOW = "TensorFlow"
    PYTORCH = "PyTorch"
    JAX = "JAX"
    CUPY = "CuPy"
    NONE = "None"


class Phase(StrEnum):
    """Where a job stands."""

    QUEUED = "Queued"
    ASSIGNED = "Assigned"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"

    @property
    def finished(self) -> bool:
        """Whether the job has come to its end."""
        return self in {Phase.SUCCEEDED, Phase.FAILED}


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_MEMORY = "OutOfMemory"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    GPU_FAULT = "GPUFault"
    SYSTEM_FAILURE = "SystemFailure"
    NODE_LOST = "NodeLost"
    POD_DELETED = "PodDeleted"
    PREEMPTED = "Preempted"
    SUSPENDED = "Suspended"
    EVICTED = "Evicted"
    NOT_STARTED = "NotStarted"


class OutOfMemoryRetry(Model):
    """What happens when the program dies because its GPU memory was refused."""

    limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often it is started again with more memory."""
    growth_percent: Annotated[int, Field(ge=1, le=1000)] = 50
    """By how many percent its memory grows each time."""


class NotStartedRetry(Model):
    """What happens when no container of the Pod has started within podStartTimeout."""

    limit: Annotated[int, Field(ge=0, le=100)] = 5
    """How often it is started again."""


class Retry(Model):
    """How often a failed job is started again."""

    limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often after a failure of the program. Attempts that end through no fault of the
    program (a GPU fault beside other jobs, a lost node, preemption, suspension) do not count. A GPU
    fault while the job runs alone is a failure of the program."""
    out_of_memory: OutOfMemoryRetry = OutOfMemoryRetry()
    """What happens when the program runs out of GPU memory."""
    not_started: NotStartedRetry = NotStartedRetry()
    """What happens when no container of the Pod has started within podStartTimeout."""


@lru_cache
def _one_of_all(retry: Retry) -> Retry:
    """Return the one Retry for all jobs that say the same, which is nearly all of them."""
    return retry


class SharedGPUJobSpec(Model):
    """What the user wants."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.slice) || (!has(self.gpuMemory) && !has(self.threadPercent))",
                "a slice has its own memory and threads: "
                "write either slice, or gpuMemory and threadPercent",
                field=".slice",
            ),
        )
    )

    partition: Name
    """The GPUPartition whose GPUs it runs on."""
    application: Annotated[Shared, Field(min_length=1, max_length=63)] | None = None
    """What the program is called: the key under which its history is kept."""
    gpu_memory: Quantity | None = None
    """GPU memory of the whole job on each of its GPUs (bytes, as a quantity). Unset takes it from
    the application's history; without history the job runs alone once, to be learnt."""
    thread_percent: Percent | None = None
    """Most of a GPU's threads that each process may use, percent; unset is 100."""
    processes: Annotated[int, Field(ge=1, le=60)] = 1
    """Processes that use the GPU, in all containers together; the memory is divided by it, for
    MPS limits each process by itself. Under MPS the newest process above it is ended. A GPU serves
    60 in all from CUDA 13.1 on, 48 before."""
    gpus: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs on one node; more than one only in a partition with sharing.mode Exclusive."""
    slice: Name | None = None
    """Name of one of the partition's fixed sizes, instead of gpuMemory and threadPercent."""
    expected_duration: Duration | None = None
    """How long it runs on an idle GPU; unset takes it from the application's history."""
    priority: Priority = 0
    """Higher goes first, but at most the partition's `maxPriority` (or that of the namespace's
    quota) counts, which is 0 by default. Below zero its kernels also yield to its neighbours'
    (MPS)."""
    suspend: bool = False
    """Do not run it now; a running one is ended and queued again on resume."""
    framework: Framework = Framework.NONE
    """The framework, whose own memory limit is then set as well."""
    retry: Annotated[Retry, AfterValidator(_one_of_all)] = Retry()
    """How often it is started again."""
    active_deadline_seconds: (
        Annotated[int, Field(ge=1, json_schema_extra=at_most(maximum=MAX_SECONDS))] | None
    ) = None
    """Seconds after its first start at which it is ended and has failed."""
    pod_start_timeout: StartTimeout | None = None
    """How long its Pod may take from its allocation until a container of it (an init container
    counts) has started; unset takes the partition's. A slow image or volume needs more."""
    ttl_seconds_after_finished: (
        Annotated[int, Field(ge=0, json_schema_extra=at_most(maximum=MAX_SECONDS))] | None
    ) = None
    """Seconds after its end at which the job is deleted; unset keeps it."""
    template: PackedTemplate
    """The Pod to run; a change takes effect with the next start."""


class Assignment(Model):
    """Where the job runs."""

    servers: Words = ()
    """GPUServers on which it is allocated."""
    gpus: Words = ()
    """UUIDs of the GPUs."""
    node: Word = ""
    """The node."""
    memory: Amount
    """GPU memory allocated on each GPU (bytes, as a quantity)."""
    thread_percent: Percent = 100
    """Percent of each GPU's threads."""
    pod: Word
    """The Pod."""
    attempt: Count
    """The attempt."""
    beside: Neighbours = ()
    """Jobs that shared the GPU when it was placed; those of other namespaces are not named."""


class Attempt(Model):
    """One start of the job."""

    number: Annotated[int, Field(ge=1, json_schema_extra=at_most(maximum=2**53 - 1))]
    """Counts from 1."""
    pod: Word = ""
    """The Pod."""
    pod_uid: Annotated[str, Field(alias="podUID", max_length=64)] = ""
    """UID of the Pod that the operator made. Another Pod of the same name does not count."""
    node: Word = ""
    """The node."""
    gpus: Words = ()
    """UUIDs of the GPUs."""
    servers: Words = ()
    """GPUServers on which it was allocated."""
    beside: Neighbours = ()
    """Jobs that shared the GPU when it was placed; those of other namespaces are not named."""
    memory: Amount = 0
    """GPU memory allocated (bytes, as a quantity)."""
    peak_memory: Amount | None = None
    """Most GPU memory used (bytes, as a quantity)."""
    queued_time: Time | None = None
    """When it began to wait: the job was submitted, or the attempt before had ended."""
    booked_time: Time | None = None
    """When the memory was allocated."""
    start_time: Time | None = None
    """When the program started."""
    first_use_time: Time | None = None
    """When the program used the GPU first, to the second; written with the attempt's end."""
    end_time: Time | None = None
    """When it ended."""
    outcome: Outcome | None = None
    """How it ended; unset while it runs."""
    reason: Annotated[Shared, Field(max_length=256)] = ""
    """Kubernetes' own reason for which its Pod did not start or was evicted, such as
    `ImagePullBackOff` or `OutOfcpu`; else empty."""
    exit_code: (
        Annotated[int, Field(json_schema_extra=at_most(minimum=-(2**31), maximum=2**31 - 1))] | None
    ) = None
    """Exit code of the program."""
    fault_suspect: bool | None = None
    """Whether its program may have caused the GPU fault that ended it. A job that was a suspect
    twice runs alone."""
    message: Annotated[Shared, Field(max_length=4096)] = ""
    """What it said last."""


class SharedGPUJobStatus(Model):
    """Where the job stands. Only the operator writes it."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    observed_generation: Count | None = None
    """The `metadata.generation` that this status speaks of."""
    phase: Phase | None = None
    """Where it stands."""
    reason: Annotated[Shared, Field(max_length=256)] = ""
    """A word for programs: why it waits, or how it ended."""
    message: Annotated[Shared, Field(max_length=4096)] = ""
    """A sentence for people: why it waits, or how it ended."""
    queue_position: (
        Annotated[int, Field(ge=1, json_schema_extra=at_most(maximum=2**53 - 1))] | None
    ) = None
    """Its place in the partition's queue, counted from 1; refreshed every few seconds."""
    conditions: Conditions = ()
    """`Scheduled`: it holds a GPU. `Stalled`: only a change of YAML helps. `Complete`, `Failed`:
    it has come to this end. `PriorityCapped`: it asks for a higher priority than it may have."""
    assignment: Assignment | None = None
    """Where it runs."""
    attempts: Annotated[
        tuple[Attempt, ...],
        Field(json_schema_extra={**keyed_by("number"), **at_most(maxItems=1000)}),
    ] = ()
    """Its starts, the first ones and the last ones where there were very many."""
    start_time: Time | None = None
    """When it first started."""
    completion_time: Time | None = None
    """When it came to its end."""
    peak_memory: Amount | None = None
    """Most GPU memory used in any attempt (bytes, as a quantity)."""
    bypasses: Annotated[int, Field(ge=0, json_schema_extra=at_most(maximum=2**53 - 1))] | None = (
        None
    )
    """Cycles that started jobs from behind it."""
    effective_priority: Priority | None = None
    """The priority that it is treated as having, where the partition's `maxPriority` or that of
    the namespace's quota is below `spec.priority`; unset where `spec.priority` counts."""
    retry: Annotated[str, Field(max_length=256)] = ""
    """The value of the annotation `partita.dev/retry` that has been dealt with."""
    retried_after: (
        Annotated[int, Field(ge=1, json_schema_extra=at_most(maximum=2**53 - 1))] | None
    ) = None
    """The attempt after which somebody had it retried; the limits count from there."""


_FROZEN = ("partition", "gpuMemory", "threadPercent", "processes", "gpus", "slice", "framework")


def _frozen_while_running() -> JsonDict:
    """One rule for all fields: each rule costs the API server at every write of a status."""
    idle = (
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
        "oldSelf.status.phase in ['Queued', 'Suspended']"
    )
    same = []
    for field in _FROZEN:
        new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
        same.append(f"has({new}) == has({old}) && (!has({new}) || {new} == {old})")
    return rule(
        f"{idle} || ({' && '.join(same)})",
        f"{', '.join(_FROZEN[:-1])} and {_FROZEN[-1]} cannot change once the job has started: "
        "set spec.suspend to true and wait for the phase Suspended, or submit a new job",
        field=".spec",
    )


class SharedGPUJob(Resource):
    """A program to run once on a slice of a GPU."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"size(self.metadata.name) <= {MAX_JOB_NAME}",
                f"the name is too long: use at most {MAX_JOB_NAME} characters "
                "(its Pods are named after it)",
            ),
            _frozen_while_running(),
        )
    )

    spec: SharedGPUJobSpec
    """What the user wants."""
    status: SharedGPUJobStatus = SharedGPUJobStatus()
    """Where the job stands."""
