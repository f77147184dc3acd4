"""GPUServer: one GPU of a partition, the report of its agent, and the ledger of allocations."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from partita.models.base import (
    Amount,
    Count,
    Model,
    Ordinal,
    Percent,
    Resource,
    Shared,
    Time,
    Word,
    at_most,
    rule,
    rules,
)
from partita.models.conditions import Condition, Conditions
from partita.models.sharing import (
    Enforcement,
    Isolation,
    MPSProtocol,
    Protocol,
    SharingMode,
    UnknownProcessesPolicy,
)
from partita.models.topology import ATOMIC

__all__ = [
    "Allocation",
    "Canary",
    "Capabilities",
    "GPUServer",
    "GPUServerSpec",
    "GPUServerStatus",
    "JobUsage",
    "KilledClient",
    "LimitMismatch",
    "MPSStatus",
    "RestartReason",
    "UnknownProcesses",
    "Usage",
]


class GPUServerSpec(Model):
    """The desired state, written by the operator."""

    partition: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            json_schema_extra=rules(
                rule(
                    "self == oldSelf",
                    "a GPU server stays in its partition: "
                    "delete it, and scale up the partition that shall have the GPU",
                )
            ),
        ),
    ]
    """The GPUPartition to which the GPU belongs."""
    mode: SharingMode = SharingMode.MPS
    """How jobs share the GPU."""
    max_jobs: Annotated[int, Field(ge=1, le=128)] = 16
    """Most jobs and claims on the GPU at the same time."""
    unknown_processes: UnknownProcessesPolicy = UnknownProcessesPolicy.REPORT
    """What the agent does with processes in Pods that use the GPU without an allocation."""
    enforcement: Enforcement = Enforcement.AUTO
    """What limits the GPU memory of a job, as in the partition's `sharing`."""
    protocol: Protocol = MPSProtocol.AUTO
    """Interface of the MPS control daemon, as in the partition's `sharing`."""
    isolation: Isolation = Isolation.NONE
    """Isolation of the jobs from each other's faults, as in the partition's `sharing`."""
    drain_since: Time | None = None
    """Since when the GPU takes no more jobs. Its jobs are queued again after the partition's
    drainTimeout. Unset lets it take jobs; `kubectl partita drain` sets it."""
    drain_reason: Annotated[str, Field(pattern="^NodeMaintenance$", max_length=64)] | None = None
    """Why the operator set `drainSince`; unset if it did not. `NodeMaintenance`: a label of the
    node requests that GPU clients leave it, as NVIDIA's GPU Operator does for a driver upgrade.
    When no job is left on the GPU, its server Pod is deleted. When the label is removed, the
    operator unsets both fields and acquires a GPU again."""


class Allocation(Model):
    """The allocation of one ResourceClaim."""

    namespace: Word
    """The namespace of the ResourceClaim and its Pod."""
    name: Word
    """The name of the ResourceClaim."""
    job: Word = ""
    """The name of the SharedGPUJob whose attempt it is; empty for other Pods."""
    job_uid: Annotated[str, Field(alias="jobUID", max_length=64)] = ""
    """The UID of that job."""
    pod: Word
    """Name of the Pod for which it is allocated."""
    pod_uid: Annotated[str, Field(alias="podUID", max_length=64)]
    """UID of that Pod. Another Pod of the same name does not count."""
    application: Annotated[Shared, Field(json_schema_extra=at_most(maxLength=253))] = ""
    """The application of the Pod, under which its usage is stored."""
    lasting: bool = False
    """Whether the Pod of the claim never ends by itself."""
    stores_usage: bool = True
    """Whether the agent of this GPU stores what the application uses. Of several GPUs of one claim,
    that of the first one does."""
    memory: Amount
    """GPU memory (bytes, as a quantity)."""
    memory_limit: Amount | None = None
    """Most GPU memory that it may use while other jobs do not need it (bytes, as a quantity); unset
    is `memory`."""
    thread_percent: Percent = 100
    """Percent of the GPU's threads."""
    slots: Ordinal = 1
    """Containers that run at the same time; each counts towards `maxJobs`."""
    clients: Ordinal = 1
    """MPS client processes."""
    alone: bool = False
    """Whether no other job may be allocated on the GPU."""
    since: Time
    """When it was allocated."""
    grown_since: Time | None = None
    """When the memory of a claim was raised last, because its program ran out of GPU memory; unset
    if it never was."""
    releasing_since: Time | None = None
    """Since when its Pod is being ended: the agent terminates its MPS clients. Unset before."""
    release_deadline: Time | None = None
    """When kubelet kills the programs that its Pod still has; unset until it is being ended."""
    not_evicted: Annotated[str, Field(max_length=512)] = ""
    """Why its Pod could not be evicted, with the PodDisruptionBudget that protects it; empty if
    nobody has tried."""

    @property
    def ceiling(self) -> int:
        """Bytes that it may use while other jobs do not need them."""
        return self.memory_limit or self.memory

    @property
    def user(self) -> str:
        """Name of the job, or of a Pod that belongs to none."""
        return self.job or self.pod

    @property
    def attempt(self) -> int:
        """The attempt of the job, from the name of its Pod; 0 for other Pods."""
        number = self.pod.removeprefix(f"{self.job}-") if self.job else ""
        return int(number) if number.isdecimal() else 0


class Capabilities(Model):
    """What the GPU, its driver and its node support, as the agent found it."""

    memory_backend: Literal["dmem", "misc", "none"] | None = None
    """How the driver limits the memory of a cgroup: by the kernel's controller `dmem`, by its own
    accounting (`misc`), or not at all (`none`)."""
    limit_hook: Literal["Applied", "NotApplied", "Failed", "Unknown"] | None = None
    """Whether the container toolkit applies memory limits to containers, as read back from a probe
    Pod. `NotApplied`: its container had no limit. `Failed`: its container was not created.
    `Unknown`: not shown yet, or tried again. Unset if no probe is needed."""


RestartReason = Literal[
    "Wedged", "UncleanEnd", "Fault", "NotAnswering", "NotStarted", "CanaryRefused"
]
"""Why the agent restarted MPS."""


class Canary(Model):
    """The canary clients, with which the agent checks whether MPS accepts clients."""

    checks: Count = 0
    """Number of canary clients that have ended since the agent started."""
    failures: Count = 0
    """Number of those that hung or were refused."""
    duration_milliseconds: Count = 0
    """Duration of the last one, in milliseconds."""


class KilledClient(Model):
    """A client that was killed while it was connected."""

    claim: Word
    """UID of its ResourceClaim, as in `status.allocations`."""
    time: Time
    """When the agent missed it, by the node's clock."""


class MPSStatus(Model):
    """The MPS control daemon of the GPU."""

    state: Literal["Starting", "Checking", "Ready", "Faulted", "Stopped"] = "Starting"
    """The state of the daemon. `Checking`: it answers, and the GPU takes no jobs until a canary
    client has shown that it accepts clients."""
    clients: Count = 0
    """Connected client processes of jobs."""
    restarts: dict[RestartReason, Count] = Field(
        default_factory=dict, json_schema_extra=at_most(maxProperties=16)
    )
    """How often the agent restarted it since the agent started, by reason. `Wedged`: clients hung,
    although it answered."""
    canary: Canary | None = None
    """The canary clients; unset before the first report."""
    killed_client: KilledClient | None = None
    """The client that was killed last, and was not terminated by MPS before. Programs beside it may
    have failed for this reason."""


class LimitMismatch(Model):
    """A memory limit of the driver that is not the one of the job's container."""

    expected: Amount
    """The limit that the container should have (bytes, as a quantity)."""
    found: Amount | None = None
    """The limit that was read back (bytes, as a quantity); unset if there was none."""


class JobUsage(Model):
    """What one job uses. A number that changes noticeably is written within a minute."""

    memory: Amount = 0
    """GPU memory now (bytes, as a quantity)."""
    peak_memory: Amount = 0
    """Most GPU memory so far (bytes, as a quantity). It is exact when the Pod has ended."""
    gpu_utilization: Annotated[int, Field(ge=0, le=100)] | None = None
    """GPU utilisation in the last minute, percent; unset if it is not measured."""
    first_use: Time | None = None
    """When the attempt first used the GPU, by the node's clock; unset before."""
    idle_since: Time | None = None
    """Since when none of its kernels has run, by the node's clock; unset if one ran in the last
    minute."""
    excess_processes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Most MPS clients of the attempt if the agent terminated one because they were more than
    allocated; unset otherwise."""
    limit_mismatch: LimitMismatch | None = None
    """The wrong memory limit of one of its containers; unset if no limit is known to be wrong."""


class UnknownProcesses(Model):
    """Processes that use the GPU without an allocation."""

    count: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Number of processes."""
    in_pods: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Number of those in Pods; the others run on the node itself."""
    memory: Amount = 0
    """GPU memory that they use (bytes, as a quantity)."""


class Usage(Model):
    """The usage of the GPU. A number that changes noticeably is written within a minute."""

    memory: Amount = 0
    """GPU memory in use (bytes, as a quantity)."""
    gpu_utilization: Annotated[int, Field(ge=0, le=100)] = 0
    """GPU utilisation in the last minute, percent."""
    unknown_processes: UnknownProcesses | None = None
    """Processes without an allocation; unset if there is none."""
    jobs: dict[str, JobUsage] = Field(
        default_factory=dict, json_schema_extra={**ATOMIC, **at_most(maxProperties=1000)}
    )
    """Usage by UID of the ResourceClaim, as in `status.allocations`."""


class GPUServerStatus(Model):
    """The report of the agent, and the allocations of the operator."""

    pod_uid: Annotated[str, Field(alias="podUID", max_length=64)] = ""
    """UID of the server Pod that the operator created. Only the operator writes it."""
    node: Word = ""
    """The node that the GPU is on."""
    uuid: Word = ""
    """The GPU's UUID as NVML gives it."""
    product: Word = ""
    """The GPU's product."""
    memory: Amount = 0
    """The GPU's whole memory (bytes, as a quantity)."""
    sm_count: Count = 0
    """Streaming multiprocessors."""
    pcie_bandwidth: Amount = 0
    """PCIe bandwidth (bytes per second, as a quantity)."""
    driver_version: Word = ""
    """NVIDIA's driver."""
    max_clients: Annotated[int, Field(ge=1, le=1024)] | None = None
    """MPS client contexts that the driver supports on the GPU; unset in other modes."""
    capabilities: Capabilities | None = None
    """What the GPU, its driver and its node support; unset in other modes than MPS."""
    enforcement: Literal["Driver", "Client"] | None = None
    """What limits the GPU memory of jobs now; unset until it is known, and in other modes."""
    protocol: Annotated[int, Field(ge=2, le=3)] | None = None
    """Protocol of the MPS control daemon now; unset until it is known, and in other modes."""
    sm_partitions: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of equal static partitions of the streaming multiprocessors; unset without them."""
    mps: MPSStatus | None = None
    """The MPS control daemon; unset in other modes."""
    usage: Usage | None = None
    """The usage of the GPU."""
    conditions: Conditions = ()
    """`Ready`: jobs may be placed. `Faulted`: every client on the GPU is lost. `DriverLimits`,
    `MPSMultiUser`, `MPSProtocol3`, `StaticSMPartitions`: whether the GPU supports each, and what to
    do if not."""
    allocations: dict[str, Allocation] = Field(
        default_factory=dict, json_schema_extra={**ATOMIC, **at_most(maxProperties=1000)}
    )
    """The ledger: the allocations, by UID of the ResourceClaim. Only the operator writes it."""

    @property
    def uses(self) -> Mapping[str, JobUsage]:
        """What each claim uses, by UID; empty before the agent's first report."""
        return self.usage.jobs if self.usage is not None else {}

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type."""
        return next((c for c in self.conditions if c.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Return whether the condition of this type is True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"


class GPUServer(Resource):
    """One GPU of a partition, created by the operator. Deleting it drains the GPU."""

    spec: GPUServerSpec
    """The desired state."""
    status: GPUServerStatus = GPUServerStatus.model_construct()
    """The report of the agent, and the allocations of the operator."""

    @property
    def out_of_service_since(self) -> datetime | None:
        """Since when it is released or drained; None while it takes jobs."""
        return self.metadata.deletion_timestamp or self.spec.drain_since

    @property
    def eligibility(self) -> tuple[object, ...]:
        """Everything that determines which jobs the GPU may take, but usage and allocations."""
        status = self.status
        return (
            self.spec,
            self.metadata.deletion_timestamp,
            status.node,
            status.uuid,
            status.product,
            status.memory,
            status.max_clients,
            status.protocol,
            status.pod_uid,
            status.enforcement,
            status.capabilities and status.capabilities.limit_hook,
            tuple((c.type, c.status, c.reason) for c in status.conditions),
            tuple(
                (uid, use.limit_mismatch) for uid, use in status.uses.items() if use.limit_mismatch
            ),
        )
