"""GPUPartition: how many GPUs a team shares, how, and by which policy."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from partita.constants import MAX_PARTITION_NAME
from partita.models.base import (
    Duration,
    HalfLife,
    Integer,
    LabelValue,
    ListedQuantity,
    Model,
    Name,
    Percent,
    Priority,
    Quantity,
    Resource,
    StartTimeout,
    Whole,
    at_least,
    rule,
    rules,
)
from partita.models.partition_status import GPUPartitionStatus
from partita.models.quantities import MEBI
from partita.models.retry import OutOfMemoryRetry
from partita.models.selector import LabelSelector
from partita.models.sharing import SharingSpec
from partita.models.topology import keyed_by

__all__ = [
    "FairnessSpec",
    "GPUPartition",
    "GPUPartitionSpec",
    "GPUSelector",
    "IdleSpec",
    "PartitionObjective",
    "PolicySpec",
    "Quota",
    "ServicesSpec",
    "Slice",
    "Toleration",
]


class Toleration(Model):
    """A taint that server Pods and jobs tolerate, as in a Pod's `tolerations`."""

    # What the API server rejects in a Pod, rejected where it is written.
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
    toleration_seconds: Integer | None = None
    """Seconds for which a NoExecute taint is tolerated; unset is for ever."""


class GPUSelector(Model):
    """Which GPUs the partition may use."""

    products: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """Products, as in the node label `nvidia.com/gpu.product`; empty selects any."""
    min_memory: Quantity | None = None
    """Least memory of a GPU (bytes, as a quantity); unset selects any."""


class Slice(Model):
    """A fixed size that a job can request by name."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.memoryLimit) || " + at_least("self.memoryLimit", "self.memory"),
                "memoryLimit is below memory: write memory or more, or remove memoryLimit",
                field=".memoryLimit",
            ),
        )
    )

    name: Annotated[
        str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ]
    """The name by which jobs request it."""
    memory: ListedQuantity
    """GPU memory of the slice (bytes, as a quantity)."""
    memory_limit: ListedQuantity | None = None
    """Most GPU memory that a job in the slice may use while other jobs do not need it (bytes, as a
    quantity); unset is `memory`. Needs sharing.burst Spare."""
    thread_percent: Percent = 100
    """Percent of the GPU's threads that the slice may use at most."""


class PartitionObjective(StrEnum):
    """What the decisions of the policy shall achieve, as far as it can."""

    MAKESPAN = "Makespan"
    COMPLETION = "Completion"
    PACKING = "Packing"
    BALANCED = "Balanced"


class PolicySpec(Model):
    """The policy that decides where jobs run."""

    name: Name = "fifo"
    """The active policy: the name of its entry point in the group `partita.policies`."""
    parameters: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """Parameters of the policy. The condition `PolicyHealthy` names an invalid one."""
    fallback: Name = "fifo"
    """The policy that decides in a cycle in which the active one fails."""
    shadow: Annotated[
        tuple[Name, ...], Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = ()
    """Policies that decide on the same snapshots without effect; see `status.shadow`."""
    model: Annotated[str, Field(max_length=1024)] | None = None
    """The model file of a learned policy; unset uses the model in Partita's image."""
    max_bypasses: Annotated[int, Field(ge=1, le=10000)] = 100
    """Cycles that may start jobs from behind a waiting job before a GPU is reserved for it."""

    @property
    def all_parameters(self) -> dict[str, Any]:
        """The parameters with which the active policy is built: with its model, if one is named."""
        model = {} if self.model is None else {"model": self.model}
        return {**self.parameters, **model}


class Quota(Model):
    """What one namespace may use of the partition."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.memory) || !has(self.guaranteed) || "
                + at_least("self.memory", "self.guaranteed"),
                "guaranteed is above memory, which is the most that the namespace may have: "
                "write memory or less",
                field=".guaranteed",
            ),
        )
    )

    namespace: Name
    """The namespace."""
    memory: ListedQuantity | None = None
    """Most GPU memory that its jobs may have allocated at once (bytes, as a quantity). Memory that
    they use above their `gpuMemory` does not count."""
    jobs: Whole | None = None
    """Most jobs that may run at once. Without it, `memory` also bounds the places that they take:
    to the same share of those of the partition, rounded up."""
    processes: Whole | None = None
    """Most MPS clients that its jobs may have at once. Without it, `memory` also bounds these: to
    the same share of those of the partition, rounded up, and at least one for each of `jobs`."""
    guaranteed: ListedQuantity | None = None
    """GPU memory that its jobs get when they need it (bytes, as a quantity). Others may borrow what
    it does not use, and their jobs, not services, are preempted for its jobs of the same or a
    higher priority as long as it holds less. The guarantees of a partition should not exceed its
    memory."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Its share in the queue's order, relative to other namespaces of the partition."""
    max_priority: Priority | None = None
    """Highest priority that its jobs may have, instead of the partition's `maxPriority`."""


class FairnessSpec(Model):
    """How the queue is ordered among namespaces."""

    half_life: HalfLife = 0.0
    """Time after which what a namespace has used counts half in the order of the queue: who used
    much goes behind who did not. It is at least `24h`, because use is recorded by days. `0s`: only
    what is allocated now counts."""


class ServicesSpec(Model):
    """Rules for lasting workloads: Pods with a claim that never end by themselves."""

    percent: Annotated[int, Field(ge=0, le=100)] = 70
    """Most that they may have allocated together, in percent of the partition's allocatable GPU
    memory, of its places and of its MPS clients."""


class IdleSpec(Model):
    """What happens to workloads that have a slice and do not use the GPU."""

    after: Duration = 3600.0
    """How long a workload must not have used the GPU until it counts as idle."""
    action: Literal["Report", "Evict"] = "Report"
    """`Report`: idle workloads are only shown. `Evict`: the Pod of an idle workload is evicted when
    a waiting job or claim of the same or a higher priority then fits."""


class GPUPartitionSpec(Model):
    """The desired state, written by the platform team."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.slices) || size(self.slices) == 0 || self.sharing.mode == 'MPS'",
                "slices need sharing.mode: MPS (only MPS enforces their limits): "
                "remove slices or set sharing.mode to MPS",
                field=".slices",
            ),
            rule(
                "self.sharing.enforcement != 'Driver' || self.sharing.mode == 'MPS'",
                "enforcement by the driver needs sharing.mode: MPS: "
                "set sharing.enforcement to Auto or sharing.mode to MPS",
                field=".sharing.enforcement",
            ),
            rule(
                "self.sharing.burst == 'Never' || self.sharing.mode == 'MPS'",
                "burst needs sharing.mode: MPS (only MPS reclaims memory): "
                "set sharing.burst to Never or sharing.mode to MPS",
                field=".sharing.burst",
            ),
            rule(
                "self.sharing.burst == 'Never' || self.sharing.enforcement != 'Client'",
                "burst needs memory limits of the driver: "
                "set sharing.burst to Never, or sharing.enforcement to Auto or Driver",
                field=".sharing.burst",
            ),
            rule(
                "!has(self.slices) || self.sharing.burst == 'Spare' || "
                "self.slices.all(s, !has(s.memoryLimit))",
                "a slice with memoryLimit needs sharing.burst: Spare: "
                "set sharing.burst to Spare, or remove memoryLimit",
                field=".slices",
            ),
            rule(
                "!self.sharing.oversubscription || self.sharing.mode != 'Exclusive'",
                "a job that has its GPU to itself needs no oversubscription: "
                "set sharing.oversubscription to false or sharing.mode to MPS",
                field=".sharing",
            ),
            rule(
                "self.sharing.isolation != 'StaticSM' || self.sharing.mode == 'MPS'",
                "isolation StaticSM needs sharing.mode: MPS (MPS partitions the SMs): "
                "set sharing.mode to MPS, or sharing.isolation to None",
                field=".sharing",
            ),
            rule(
                "self.sharing.isolation != 'StaticSM' || !has(self.slices) || self.slices.all(s, "
                "s.threadPercent == 100 || s.threadPercent * self.sharing.maxJobsPerGPU <= 100)",
                "with isolation StaticSM each job gets an equal share of the SMs: remove "
                "threadPercent, or write 100 / maxJobsPerGPU or less",
                field=".slices",
            ),
            rule(
                "self.sharing.mode != 'MPS' || self.sharing.maxJobsPerGPU <= 60",
                "MPS serves at most 60 clients on a GPU: set sharing.maxJobsPerGPU to 60 or less",
                field=".sharing.maxJobsPerGPU",
            ),
        )
    )

    gpus: Annotated[int, Field(ge=0, le=10000)]
    """Number of whole GPUs of the partition; `kubectl scale` changes it."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Labels of the nodes whose GPUs may be used."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints of the GPU nodes that the server Pods and the jobs' Pods tolerate."""
    gpu_selector: GPUSelector = GPUSelector.model_construct()
    """Which GPUs may be used."""
    sharing: SharingSpec = SharingSpec.model_construct()
    """How the jobs on one GPU share it."""
    slices: Annotated[
        tuple[Slice, ...], Field(max_length=32, json_schema_extra=keyed_by("name"))
    ] = ()
    """Fixed sizes. If there are any, each job gets the smallest that is large enough."""
    policy: PolicySpec = PolicySpec.model_construct()
    """The policy that decides where jobs run."""
    objective: PartitionObjective = PartitionObjective.MAKESPAN
    """What the decisions shall achieve, as far as the policy can.
    `Makespan`: all waiting jobs end soon. `Completion`: the mean time from submission to end is
    short. `Packing`: as much of the GPUs as possible can be allocated before a job does not fit.
    `Balanced`: packing while the waiting jobs ask for more memory than is free, completion
    otherwise."""
    allowed_namespaces: LabelSelector | None = None
    """Labels of the namespaces whose jobs may run here; unset allows all."""
    quotas: Annotated[
        tuple[Quota, ...], Field(max_length=1000, json_schema_extra=keyed_by("namespace"))
    ] = ()
    """Quotas of namespaces. A namespace that is not listed has no limit but the GPUs."""
    fairness: FairnessSpec = FairnessSpec.model_construct()
    """How the queue is ordered among namespaces."""
    preemption: Literal["Never", "LowerPriority"] = "Never"
    """`LowerPriority`: for a job that does not fit, running jobs of lower effective priority are
    stopped. They are queued again, and it does not count as a failure."""
    preemption_grace_period: Duration = 60.0
    """Longest time that the programs of a preempted job have to terminate. The
    `terminationGracePeriodSeconds` of the job applies if it is shorter. Less than 1s counts as
    1s."""
    max_priority: Priority = 0
    """Highest priority that a job may have. A higher one counts as this one. The `maxPriority` of a
    quota replaces it for its namespace."""
    device_injection: Literal["Auto", "CDI", "RuntimeClass"] = "Auto"
    """How the GPU's device files reach a job's containers: `CDI` by the devices of its claim,
    `RuntimeClass` by the runtime class `nvidia`, `Auto` by what the node offers."""
    gpu_source: Literal["DevicePlugin", "DRA"] = "DevicePlugin"
    """How server Pods get their GPU. `DevicePlugin`: they request `nvidia.com/gpu`. `DRA`: they
    claim a device of class `gpu.nvidia.com`, which NVIDIA's driver for dynamic resource allocation
    offers."""
    services: ServicesSpec = ServicesSpec.model_construct()
    """Rules for lasting workloads: Pods with a claim that never end by themselves."""
    idle: IdleSpec | None = None
    """What happens to workloads that do not use their GPU; unset does nothing."""
    out_of_memory: OutOfMemoryRetry = OutOfMemoryRetry.model_construct()
    """More memory for a Pod with a claim whose program ran out of GPU memory. SharedGPUJobs have
    their own `spec.retry.outOfMemory`."""
    drain_timeout: Duration = 600.0
    """How long a GPU that is released waits for its jobs before they are queued again."""
    pod_start_timeout: StartTimeout = 600.0
    """Longest time from a job's allocation until a container of its Pod (or an init container) has
    started. After it the GPU is released and the attempt ends as `NotStarted`. A job may set its
    own."""

    def allocatable(self, memory: int) -> int:
        """Return the bytes of a GPU that may be allocated: without the reserve, in whole MiB."""
        return memory * (100 - self.sharing.memory_reserve_percent) // 100 // MEBI * MEBI

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

    def effective_priority(self, namespace: str, priority: int) -> int:
        """Return the priority that a job of this namespace has with a priority in its spec."""
        return min(priority, self.priority_cap(namespace))


class GPUPartition(Resource):
    """A number of whole GPUs that jobs share, and the rules for sharing them."""

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
    status: GPUPartitionStatus = GPUPartitionStatus.model_construct()
    """What there is."""
