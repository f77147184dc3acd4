"""SharedGPUJob: a program to run once on a slice of a GPU."""

from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.config import JsonDict

from partita.constants import MAX_JOB_NAME
from partita.models.base import (
    Amount,
    Count,
    Duration,
    Integer,
    Model,
    Name,
    Ordinal,
    Percent,
    Priority,
    Quantity,
    Resource,
    Shared,
    StartTimeout,
    Time,
    Whole,
    Word,
    at_least,
    at_most,
    rule,
    rules,
)
from partita.models.conditions import Conditions
from partita.models.retry import Retry
from partita.models.template import PackedTemplate
from partita.models.topology import ATOMIC, ATOMIC_LIST

__all__ = [
    "Assignment",
    "Attempt",
    "EstimatedStart",
    "Framework",
    "Outcome",
    "Phase",
    "SharedGPUJob",
    "SharedGPUJobSpec",
    "SharedGPUJobStatus",
]


Words = Annotated[tuple[Word, ...], Field(json_schema_extra=at_most(maxItems=64))]
"""One for each GPU of a job."""
Neighbours = Annotated[tuple[Word, ...], Field(json_schema_extra=at_most(maxItems=64 * 128))]
"""Jobs and Pods with claims on the same GPUs, at most 128 on each."""


class Framework(StrEnum):
    """Frameworks whose own memory limit is also set."""

    TENSORFLOW = "TensorFlow"
    PYTORCH = "PyTorch"
    JAX = "JAX"
    CUPY = "CuPy"
    NONE = "None"


class Phase(StrEnum):
    """The state of a job."""

    QUEUED = "Queued"
    ASSIGNED = "Assigned"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed."""
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
    RECLAIMED = "Reclaimed"


@lru_cache
def _one_of_all(retry: Retry) -> Retry:
    """Return one object for all jobs with the same values, which is nearly all of them."""
    return retry


class SharedGPUJobSpec(Model):
    """The desired state, written by the user."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.slice) || (!has(self.gpuMemory) && !has(self.gpuMemoryLimit) && "
                "!has(self.threadPercent))",
                "a slice has its own memory and threads: "
                "write either slice, or gpuMemory, gpuMemoryLimit and threadPercent",
                field=".slice",
            ),
            rule(
                "!has(self.gpuMemoryLimit) || has(self.gpuMemory) || has(self.slice)",
                "gpuMemoryLimit is the most that a job may use above what it is guaranteed: "
                "write gpuMemory too",
                field=".gpuMemoryLimit",
            ),
            rule(
                "!has(self.gpuMemoryLimit) || !has(self.gpuMemory) || "
                + at_least("string(self.gpuMemoryLimit)", "string(self.gpuMemory)"),
                "gpuMemoryLimit is below gpuMemory: write gpuMemory or more, "
                "or remove gpuMemoryLimit",
                field=".gpuMemoryLimit",
            ),
        )
    )

    partition: Name
    """The GPUPartition on whose GPUs the job runs."""
    application: Annotated[Shared, Field(min_length=1, max_length=63)] | None = None
    """Name of the program. Its measured usage is stored under this name."""
    gpu_memory: Quantity | None = None
    """GPU memory of the whole job on each of its GPUs (bytes, as a quantity). Unset takes it from
    the application's history. Without a history the first run gets a whole GPU so that its usage
    can be measured."""
    gpu_memory_limit: Quantity | None = None
    """Most GPU memory that the whole job may use on each of its GPUs while other jobs do not need
    it (bytes, as a quantity); unset is `gpuMemory`. What it uses above `gpuMemory` is not
    guaranteed: when another job needs that memory, the job is ended and queued again first. Needs
    a partition with sharing.burst Spare."""
    thread_percent: Percent | None = None
    """Largest share of the GPU's threads that each process may use, in percent; unset is 100."""
    processes: Annotated[int, Field(ge=1, le=60)] = 1
    """Number of processes that use the GPU, in all containers together. The memory is divided by
    it, because MPS limits each process separately. Under MPS the newest process above this number
    is terminated. A GPU serves 60 processes from CUDA 13.1 on, 48 before."""
    gpus: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs on one node; more than one only in a partition with sharing.mode Exclusive."""
    slice: Name | None = None
    """Name of one of the partition's fixed sizes, instead of gpuMemory and threadPercent."""
    expected_duration: Duration | None = None
    """Run time on an idle GPU; unset takes it from the application's history."""
    priority: Priority = 0
    """Jobs of a higher priority start first. A value above the partition's `maxPriority` (or that
    of the namespace's quota), which is 0 by default, counts as that maximum. Under MPS the kernels
    of a job below zero also yield to those of co-located jobs."""
    suspend: bool = False
    """Do not run the job now. A running job is stopped, and queued again on resume."""
    framework: Framework = Framework.NONE
    """The framework whose own memory limit is also set."""
    retry: Annotated[Retry, AfterValidator(_one_of_all)] = Retry.model_construct()
    """How often the job is started again."""
    active_deadline_seconds: Annotated[Whole, Field(ge=1)] | None = None
    """Seconds after its first start at which the job is stopped and fails."""
    pod_start_timeout: StartTimeout | None = None
    """Longest time from the allocation until a container of the Pod (or an init container) has
    started; unset takes the partition's. A slow image or volume needs more."""
    ttl_seconds_after_finished: Whole | None = None
    """Seconds after its end at which the job is deleted; unset keeps the job."""
    template: PackedTemplate
    """The Pod to run. A change takes effect at the next start. It cannot change once the job has
    finished, except together with a new value of the annotation `partita.dev/retry` of a failed
    job."""


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
    memory_limit: Amount | None = None
    """Most GPU memory that it may use on each GPU while other jobs do not need it (bytes, as a
    quantity); unset is `memory`."""
    thread_percent: Percent = 100
    """Percent of each GPU's threads."""
    pod: Word
    """The Pod."""
    attempt: Count
    """The attempt."""
    beside: Neighbours = ()
    """Co-located jobs, and Pods with claims, when it was placed: each as namespace/name. Those of
    other namespaces are not named."""


class Attempt(Model):
    """One start of the job."""

    number: Ordinal
    """Number of the attempt, from 1."""
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
    """Co-located jobs, and Pods with claims, when it was placed: each as namespace/name. Those of
    other namespaces are not named."""
    memory: Amount = 0
    """GPU memory allocated (bytes, as a quantity)."""
    memory_limit: Amount | None = None
    """Most GPU memory that it could use while other jobs did not need it (bytes, as a quantity);
    unset is `memory`."""
    peak_memory: Amount | None = None
    """Most GPU memory used (bytes, as a quantity)."""
    queued_time: Time | None = None
    """When it was queued: the job was submitted, or the previous attempt had ended."""
    booked_time: Time | None = None
    """When the memory was allocated."""
    start_time: Time | None = None
    """When the program started."""
    first_use_time: Time | None = None
    """When the program first used the GPU, to the second; written when the attempt ends."""
    end_time: Time | None = None
    """When it ended."""
    outcome: Outcome | None = None
    """How it ended; unset while it runs."""
    reason: Annotated[Shared, Field(max_length=256)] = ""
    """Kubernetes' reason why the Pod did not start or was evicted, such as `ImagePullBackOff` or
    `OutOfcpu`; empty otherwise."""
    exit_code: Integer | None = None
    """Exit code of the program."""
    fault_suspect: bool | None = None
    """Whether the program may have caused the GPU fault that ended the attempt. A job for which
    this is true twice runs alone from then on."""
    message: Annotated[Shared, Field(max_length=4096)] = ""
    """Its last output or error."""


class EstimatedStart(Model):
    """When a waiting job is expected to start; written again when it has changed noticeably."""

    earliest: Time | None = None
    """The job starts no earlier, and no later than `latest`, with `probability`; unset if nothing
    can be said."""
    latest: Time | None = None
    """See `earliest`; unset if it is not known, and `reason` says why."""
    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of such intervals that hold."""
    as_of: Time | None = None
    """The state of the partition from which it was computed."""
    reason: Annotated[Shared, Field(max_length=4096)] = ""
    """Why nothing can be said, or no latest time; empty otherwise."""


class SharedGPUJobStatus(Model):
    """The observed state. Only the operator writes it."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    observed_generation: Count | None = None
    """The `metadata.generation` to which this status belongs."""
    phase: Phase | None = None
    """The state of the job."""
    reason: Annotated[Shared, Field(max_length=256)] = ""
    """Why the job waits or how it ended, as one word for programs."""
    message: Annotated[Shared, Field(max_length=4096)] = ""
    """Why the job waits or how it ended, as a sentence."""
    queue_position: Ordinal | None = None
    """Position in the partition's queue, from 1; updated every few seconds."""
    estimated_start: EstimatedStart | None = None
    """When it is expected to start; unset while it waits for something other than a GPU, which
    `reason` names, such as a quota, and once it has one."""
    conditions: Conditions = ()
    """`Scheduled`: the job has a GPU. `Stalled`: it cannot run until an object is changed.
    `Complete` and `Failed`: it has finished. `PriorityCapped`: it requests a higher priority than
    it may have."""
    assignment: Assignment | None = None
    """Where it runs."""
    attempts: Annotated[
        tuple[Attempt, ...],
        Field(json_schema_extra={**ATOMIC_LIST, **at_most(maxItems=1000)}),
    ] = ()
    """The attempts; of very many only the first and the last."""
    start_time: Time | None = None
    """When it first started."""
    completion_time: Time | None = None
    """When it finished."""
    peak_memory: Amount | None = None
    """Most GPU memory used in any attempt (bytes, as a quantity)."""
    bypasses: Count | None = None
    """Scheduling cycles that started jobs from behind it in the queue."""
    effective_priority: Priority | None = None
    """The priority that applies if the partition's `maxPriority` or that of the namespace's quota
    is below `spec.priority`; unset if `spec.priority` applies."""
    retry: Annotated[str, Field(max_length=256)] = ""
    """The last value of the annotation `partita.dev/retry` that was processed."""
    retried_after: Ordinal | None = None
    """The attempt after which a user retried the job; the retry limits count from there."""


_FROZEN = (
    "partition",
    "gpuMemory",
    "gpuMemoryLimit",
    "threadPercent",
    "processes",
    "gpus",
    "slice",
    "framework",
)


def _frozen_while_running() -> JsonDict:
    """Return one rule for all fields: each rule is evaluated at every write of a status.

    A failed job may get other values together with a request to retry it, which no rule of a CRD
    can see: it is in the metadata. `partita-finished-jobs` in manifests/base/admission.yaml does.

    A write that changes the phase is one of the status and cannot change the spec. So it need not
    compare the fields, of which the API server makes a list of all fields of the spec each time
    (`Structural.Properties` in k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model).
    """
    idle = (
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
        "oldSelf.status.phase in ['Queued', 'Suspended', 'Failed']"
    )
    changes_phase = (
        "!has(self.status) || !has(self.status.phase) || self.status.phase != oldSelf.status.phase"
    )
    same = []
    for field in _FROZEN:
        new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
        same.append(f"has({new}) == has({old}) && (!has({new}) || {new} == {old})")
    return rule(
        f"{idle} || {changes_phase} || ({' && '.join(same)})",
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
    """The desired state."""
    status: SharedGPUJobStatus = SharedGPUJobStatus.model_construct()
    """The observed state."""

    @property
    def may_be_placed(self) -> bool:
        """Whether it may get GPUs: it is neither suspended nor being deleted."""
        return not self.spec.suspend and self.metadata.deletion_timestamp is None

    @property
    def indexed(self) -> tuple[str, bool, bool]:
        """Its partition, whether its status says suspended, and whether it waits or runs."""
        phase, suspend = self.status.phase, self.spec.suspend
        unfinished = not suspend and (phase is None or not phase.finished)
        return self.spec.partition, phase is Phase.SUSPENDED, unfinished
