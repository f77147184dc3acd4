"""GPUPartition: how many GPUs a team shares, how, and by which policy."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from partita.constants import MAX_PARTITION_NAME
from partita.models.base import (
    Amount,
    Conditions,
    Count,
    Duration,
    LabelValue,
    ListedQuantity,
    Model,
    Quantity,
    Resource,
    Shared,
    StartTimeout,
    Total,
    Word,
    at_most,
    keyed_by,
    rule,
    rules,
)
from partita.models.selector import LabelSelector

__all__ = [
    "Capacity",
    "GPUPartition",
    "GPUPartitionSpec",
    "GPUPartitionStatus",
    "GPUSelector",
    "GPUSummary",
    "PolicySpec",
    "PolicyStatus",
    "QueueStatus",
    "Quota",
    "ShadowStatus",
    "SharingMode",
    "SharingSpec",
    "Slice",
    "Toleration",
]

Name = Annotated[Shared, Field(min_length=1, max_length=63)]
Percent = Annotated[int, Field(ge=1, le=100)]
Priority = Annotated[int, Field(ge=-1000000, le=1000000)]


class SharingMode(StrEnum):
    """How the jobs on one GPU share it."""

    MPS = "MPS"
    TIME_SLICING = "TimeSlicing"
    EXCLUSIVE = "Exclusive"


class Toleration(Model):
    """A taint that server Pods and jobs tolerate, as in a Pod's `tolerations`."""

    # What the API server would refuse in a Pod, said where it is written.
    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.key) || self.operator == 'Exists'",
                "a toleration of every taint has no value to compare: "
                "write a key, or operator: Exists",
            ),
            rule(
                "!has(self.value) || self.operator == 'Equal'",
                "operator Exists compares no value: remove value, or write operator: Equal",
            ),
            rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "tolerationSeconds is for taints that end Pods: "
                "write effect: NoExecute, or remove tolerationSeconds",
            ),
        )
    )

    key: Annotated[str, Field(max_length=317)] | None = None
    """The taint's key; unset with operator Exists matches every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """How `value` relates to the taint's value."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint's value, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; unset matches every effect."""
    toleration_seconds: (
        Annotated[int, Field(json_schema_extra=at_most(minimum=-(2**31), maximum=2**31 - 1))] | None
    ) = None
    """Seconds for which a NoExecute taint is tolerated; unset is for ever."""


class GPUSelector(Model):
    """Which GPUs the partition may take."""

    products: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """Products, as in the node label `nvidia.com/gpu.product`; empty takes any."""
    min_memory: Quantity | None = None
    """Least memory of a GPU (bytes, as a quantity); unset takes any."""


class UnknownProcessesPolicy(StrEnum):
    """What becomes of processes in Pods that use a GPU without an allocation."""

    REPORT = "Report"
    TERMINATE = "Terminate"


class SharingSpec(Model):
    """How the jobs on one GPU share it."""

    mode: SharingMode = SharingMode.MPS
    """`MPS`: jobs run at the same time, each with its memory and compute limit. `TimeSlicing`:
    jobs take turns, memory is allocated but not enforced. `Exclusive`: one job at a time."""
    max_jobs_per_gpu: Annotated[int, Field(alias="maxJobsPerGPU", ge=1, le=128)] = 16
    """Most jobs on one GPU at a time. Under MPS a GPU serves 60 client processes in all from CUDA
    13.1 on, 48 before."""
    memory_reserve_percent: Annotated[int, Field(ge=0, le=50)] = 7
    """Percent of a GPU's memory that is never allocated. A GPU filled past about 93 % starts to
    fail jobs (Son, Kim and Han, section 3.3)."""
    oversubscription: bool = False
    """Give TensorFlow and JAX jobs unified memory, so that one may use more than its allocation at
    the price of speed. Other frameworks cannot have it, and their jobs say so."""
    unknown_processes: UnknownProcessesPolicy = UnknownProcessesPolicy.REPORT
    """What becomes of processes that use a GPU without an allocation. `Report` counts them in the
    GPUServer's status. `Terminate` also ends those that run in Pods; processes of the node itself
    are never ended."""


class Slice(Model):
    """A fixed size that a job can take by its name."""

    name: Annotated[
        str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ]
    """What jobs call it."""
    memory: ListedQuantity
    """GPU memory of the slice (bytes, as a quantity)."""
    thread_percent: Percent = 100
    """Percent of the GPU's threads that the slice may use at most."""


class PolicySpec(Model):
    """Who decides which job runs beside whom."""

    name: Name = "fifo"
    """The policy in charge, by the name of its entry point in the group `partita.policies`."""
    parameters: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """The policy's own parameters; a wrong one is named in the condition `PolicyHealthy`."""
    fallback: Name = "fifo"
    """The policy that decides in a cycle in which the one in charge fails."""
    shadow: Annotated[
        tuple[Name, ...], Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = ()
    """Policies that decide on the same snapshots without effect; see `status.shadow`."""
    model: Annotated[str, Field(max_length=1024)] | None = None
    """The model file of a learned policy; unset takes the one that ships with Partita."""
    max_bypasses: Annotated[int, Field(ge=1, le=10000)] = 100
    """Cycles that may start jobs from behind a waiting job before a GPU is held for it."""


class Quota(Model):
    """What one namespace may have of the partition."""

    namespace: Name
    """The namespace."""
    memory: ListedQuantity | None = None
    """Most GPU memory that its jobs hold at the same time (bytes, as a quantity)."""
    jobs: Annotated[int, Field(ge=0, json_schema_extra=at_most(maximum=2**31 - 1))] | None = None
    """Most jobs that it runs at the same time."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Its share in the queue's order, relative to other namespaces of the partition."""
    max_priority: Priority | None = None
    """Highest priority that its jobs may have, instead of the partition's `maxPriority`."""


class GPUPartitionSpec(Model):
    """What the platform team wants."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.slices) || size(self.slices) == 0 || self.sharing.mode == 'MPS'",
                "slices need sharing.mode: MPS (only MPS enforces their limits): "
                "remove slices or set sharing.mode to MPS",
                field=".slices",
            ),
            rule(
                "!self.sharing.oversubscription || self.sharing.mode != 'Exclusive'",
                "a job that has its GPU to itself needs no oversubscription: "
                "set sharing.oversubscription to false or sharing.mode to MPS",
                field=".sharing",
            ),
            rule(
                "self.sharing.mode != 'MPS' || self.sharing.maxJobsPerGPU <= 60",
                "MPS serves at most 60 clients on a GPU: set sharing.maxJobsPerGPU to 60 or less",
                field=".sharing.maxJobsPerGPU",
            ),
        )
    )

    gpus: Annotated[int, Field(ge=0, le=10000)]
    """How many whole GPUs to carve out; `kubectl scale` changes it."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Labels of the nodes whose GPUs may be taken."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints of the GPU nodes: the server Pods tolerate them, and the jobs' Pods."""
    gpu_selector: GPUSelector = GPUSelector()
    """Which GPUs may be taken."""
    sharing: SharingSpec = SharingSpec()
    """How the jobs on one GPU share it."""
    slices: Annotated[
        tuple[Slice, ...], Field(max_length=32, json_schema_extra=keyed_by("name"))
    ] = ()
    """Fixed sizes. Where there are any, every job gets the smallest that holds its request."""
    policy: PolicySpec = PolicySpec()
    """Who decides which job runs beside whom."""
    allowed_namespaces: LabelSelector | None = None
    """Labels of the namespaces whose jobs are served; unset serves all."""
    quotas: Annotated[
        tuple[Quota, ...], Field(max_length=1000, json_schema_extra=keyed_by("namespace"))
    ] = ()
    """What single namespaces may have; one that is not listed is bounded by the GPUs alone."""
    preemption: Literal["Never", "LowerPriority"] = "Never"
    """`LowerPriority`: a job that does not fit ends running jobs of lower effective priority; they
    are queued again, and it does not count as their failure."""
    preemption_grace_period: Duration = 60.0
    """Longest time that the Pod of a preempted job has to terminate. Its own
    `terminationGracePeriodSeconds` applies where that is shorter. Less than 1s counts as 1s."""
    max_priority: Priority = 0
    """Highest priority that a job may have; a job that asks for more is treated as having this
    one. A quota's `maxPriority` is for its namespace."""
    device_injection: Literal["Auto", "CDI", "RuntimeClass"] = "Auto"
    """How the GPU's device files reach a job's containers: `CDI` by the device plugin's answer,
    `RuntimeClass` by the runtime class `nvidia`, `Auto` by what the node offers."""
    drain_timeout: Duration = 600.0
    """How long a GPU that is given back waits for its jobs before they are queued again."""
    pod_start_timeout: StartTimeout = 600.0
    """How long a job's Pod may take from its allocation until a container of it (an init container
    counts) has started. Then its GPU is released and the attempt ends as `NotStarted`. A job may
    set its own."""

    def slice(self, name: str) -> Slice | None:
        """Return the slice of this name."""
        return next((s for s in self.slices if s.name == name), None)

    def quota(self, namespace: str) -> Quota | None:
        """Return the quota of this namespace."""
        return next((q for q in self.quotas if q.namespace == namespace), None)

    def priority_cap(self, namespace: str) -> int:
        """Return the highest priority that jobs of this namespace may have."""
        quota = self.quota(namespace)
        own = quota.max_priority if quota else None
        return self.max_priority if own is None else own


class Capacity(Model):
    """An amount of GPUs, memory and jobs."""

    gpus: Count = 0
    """Number of GPUs."""
    memory: Total = 0
    """GPU memory (bytes, as a quantity)."""
    jobs: Count = 0
    """Number of jobs."""


class QueueStatus(Model):
    """How many jobs of the partition there are."""

    queued: Count = 0
    """Jobs that wait."""
    running: Count = 0
    """Jobs that hold GPU memory."""
    suspended: Count = 0
    """Jobs that are suspended."""


class PolicyStatus(Model):
    """The policy in charge."""

    active: Word = ""
    """The policy that decided in the last cycle."""
    cycles: Count = 0
    """Cycles decided since the policy was last changed."""
    fallbacks: Count = 0
    """Cycles of these in which the fallback decided."""
    rejected: Count = 0
    """Placements of these that the guard refused."""


class ShadowStatus(Model):
    """What a shadow policy would have done, since it was added."""

    name: Word
    """The policy."""
    cycles: Count = 0
    """Cycles in which it decided."""
    agreed: Count = 0
    """Cycles of these in which its placements were those of the policy in charge."""
    placements: Count = 0
    """Placements that it would have made."""
    failures: Count = 0
    """Cycles in which it failed or overran its time."""
    message: Annotated[str, Field(json_schema_extra=at_most(maxLength=4096))] = ""
    """Its last failure."""


class GPUSummary(Model):
    """One carved GPU in short."""

    name: Word
    """Its GPUServer."""
    node: Word = ""
    """The node that it is on."""
    product: Word = ""
    """The GPU's product."""
    memory: Amount = 0
    """Memory that may be allocated (bytes, as a quantity)."""
    allocated: Amount = 0
    """Memory that is allocated (bytes, as a quantity)."""
    jobs: Count = 0
    """Jobs on it."""
    state: Literal[
        "Ready",
        "Starting",
        "Unschedulable",
        "Drained",
        "Draining",
        "Faulted",
        "Unready",
        "Mismatched",
    ] = "Starting"
    """Whether it may take jobs. `Unschedulable`: kube-scheduler finds no GPU for its server Pod.
    `Draining`: it is released. `Drained`: it takes no jobs for a while (the GPUServer's
    `drainSince`)."""
    message: Annotated[str, Field(json_schema_extra=at_most(maxLength=512))] = ""
    """Why it takes no jobs, where that is known."""


class GPUPartitionStatus(Model):
    """What there is."""

    observed_generation: Count | None = None
    """The `metadata.generation` that this status speaks of."""
    conditions: Conditions = ()
    """`Ready`: all GPUs may take jobs. `Progressing`: GPUs come or go. `Degraded`: something is
    wrong. `PolicyHealthy`: the policy in charge decides."""
    gpus: Count = 0
    """GPUs that may take jobs."""
    capacity: Capacity | None = None
    """What may be allocated."""
    allocated: Capacity | None = None
    """What is allocated."""
    queue: QueueStatus | None = None
    """How many jobs there are."""
    policy: PolicyStatus | None = None
    """The policy in charge."""
    shadow: Annotated[
        tuple[ShadowStatus, ...],
        Field(json_schema_extra={**keyed_by("name"), **at_most(maxItems=64)}),
    ] = ()
    """What the shadow policies would have done."""
    gpu_summary: Annotated[
        tuple[GPUSummary, ...],
        Field(json_schema_extra={**keyed_by("name"), **at_most(maxItems=20000)}),
    ] = ()
    """The GPUs, one by one."""


class GPUPartition(Resource):
    """A number of whole GPUs that jobs share, and the rules by which they do."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"size(self.metadata.name) <= {MAX_PARTITION_NAME}",
                f"the name is too long: use at most {MAX_PARTITION_NAME} characters "
                "(its GPU servers are named after it)",
            ),
        )
    )

    spec: GPUPartitionSpec
    """What the platform team wants."""
    status: GPUPartitionStatus = GPUPartitionStatus()
    """What there is."""
