"""The status of a GPUPartition: what there is, what is allocated, and how its policies did."""

from typing import Annotated, Literal

from pydantic import Field

from partita.models.base import (
    Amount,
    Count,
    Duration,
    Integer,
    Model,
    Total,
    Word,
    at_most,
)
from partita.models.conditions import Conditions
from partita.models.topology import ATOMIC_LIST

__all__ = [
    "Capacity",
    "EstimatedStarts",
    "GPUPartitionStatus",
    "GPUState",
    "GPUSummary",
    "PolicyStatus",
    "QueueStatus",
    "ShadowStatus",
]


class Capacity(Model):
    """An amount of GPUs, memory and jobs."""

    gpus: Count = 0
    """Number of GPUs."""
    memory: Total = 0
    """GPU memory (bytes, as a quantity)."""
    jobs: Count = 0
    """Number of jobs."""


class QueueStatus(Model):
    """Number of jobs and claims of the partition."""

    queued: Count = 0
    """Jobs and claims that wait."""
    running: Count = 0
    """Jobs and claims with allocated GPU memory."""
    suspended: Count = 0
    """Jobs that are suspended."""


class PolicyStatus(Model):
    """The active policy."""

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
    """Cycles of these in which its placements were those of the active policy."""
    placements: Count = 0
    """Placements that it would have made."""
    failures: Count = 0
    """Cycles in which it failed or overran its time."""
    message: Annotated[str, Field(json_schema_extra=at_most(maxLength=4096))] = ""
    """Its last failure."""
    estimated: Count = 0
    """Waiting jobs whose starts were estimated under it and under the active policy, in the same
    futures; a job counts each time."""
    wait_change: Integer = 0
    """Mean seconds by which these jobs would start later than under the active policy; below 0,
    sooner."""


class EstimatedStarts(Model):
    """How well the first estimate of each job's start came true, since the operator began."""

    started: Count = 0
    """Jobs that started after it had been estimated when."""
    held: Count = 0
    """Jobs of these that started within the interval; 90 % shall."""
    median_width: Duration = 0.0
    """Median length of the intervals of the last 300 of these jobs."""
    median_error: Duration = 0.0
    """Median time from the midpoint of the interval to the start, of the last 300."""


GPUState = Literal[
    "Ready",
    "Starting",
    "Unschedulable",
    "Drained",
    "Draining",
    "Faulted",
    "Unready",
    "Mismatched",
]


class GPUSummary(Model):
    """Summary of one GPU."""

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
    state: GPUState = "Starting"
    """Whether it may take jobs. `Unschedulable`: kube-scheduler finds no GPU for its server Pod.
    `Draining`: it is released. `Drained`: it takes no jobs for a while (the GPUServer's
    `drainSince`)."""
    enforcement: Literal["Driver", "Client"] | None = None
    """What limits the GPU memory of its jobs; unset until it is known, and without MPS."""
    message: Annotated[str, Field(json_schema_extra=at_most(maxLength=512))] = ""
    """Why it takes no jobs, if that is known."""


class GPUPartitionStatus(Model):
    """The observed state. Only the operator writes it."""

    observed_generation: Count | None = None
    """The `metadata.generation` to which this status belongs."""
    conditions: Conditions = ()
    """`Ready`: all GPUs may take jobs. `Progressing`: GPUs are being added or released. `Degraded`:
    something is wrong. `PolicyHealthy`: the active policy decides."""
    gpus: Count = 0
    """GPUs that may take jobs."""
    capacity: Capacity | None = None
    """What may be allocated."""
    allocated: Capacity | None = None
    """What is allocated."""
    queue: QueueStatus | None = None
    """Number of jobs."""
    policy: PolicyStatus | None = None
    """The active policy."""
    shadow: Annotated[
        tuple[ShadowStatus, ...],
        Field(json_schema_extra={**ATOMIC_LIST, **at_most(maxItems=64)}),
    ] = ()
    """What the shadow policies would have done."""
    estimated_starts: EstimatedStarts | None = None
    """How well starts were estimated; unset before the first."""
    gpu_summary: Annotated[
        tuple[GPUSummary, ...],
        Field(json_schema_extra={**ATOMIC_LIST, **at_most(maxItems=20000)}),
    ] = ()
    """The GPUs, one by one."""
