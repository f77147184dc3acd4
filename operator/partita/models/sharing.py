"""How the jobs on one GPU share it: the sharing mode, and how limits and isolation are achieved."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from partita.models.base import INT_OR_STRING, Model, rule, rules

__all__ = [
    "Burst",
    "Enforcement",
    "Isolation",
    "MPSProtocol",
    "Protocol",
    "SharingMode",
    "SharingSpec",
    "UnknownProcessesPolicy",
]


class SharingMode(StrEnum):
    """How the jobs on one GPU share it."""

    MPS = "MPS"
    TIME_SLICING = "TimeSlicing"
    EXCLUSIVE = "Exclusive"


class Enforcement(StrEnum):
    """What limits the GPU memory of a job."""

    AUTO = "Auto"
    DRIVER = "Driver"
    CLIENT = "Client"


class Burst(StrEnum):
    """Whether a job may use memory above its guarantee."""

    NEVER = "Never"
    SPARE = "Spare"


class Isolation(StrEnum):
    """How the jobs on one GPU are isolated from each other's faults."""

    NONE = "None"
    STATIC_SM = "StaticSM"


class MPSProtocol(StrEnum):
    """The interface of the MPS control daemon."""

    AUTO = "Auto"
    V2 = "2"
    V3 = "3"


Protocol = Annotated[
    MPSProtocol,
    BeforeValidator(str),
    WithJsonSchema(
        {
            **INT_OR_STRING,
            "maxLength": 8,
            **rules(rule("string(self) in ['Auto', '2', '3']", "write Auto, 2 or 3")),
        }
    ),
]
"""An `MPSProtocol`; in YAML `2` and `3` may be numbers."""


class UnknownProcessesPolicy(StrEnum):
    """What happens to processes in Pods that use a GPU without an allocation."""

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
    enforcement: Enforcement = Enforcement.AUTO
    """What limits the GPU memory of a job under MPS. `Driver`: the driver, for the container as a
    whole; a program cannot remove this limit. It needs driver r615, cgroup v2 and NVIDIA's
    container toolkit 1.20.1; a GPU on which it does not work takes no jobs. `Client`: MPS limits
    each process, and the agent terminates a process that exceeds its allocation. `Auto`: `Driver`
    on each GPU on which it was shown to work, else `Client`."""
    burst: Burst = Burst.NEVER
    """Whether a job may use more memory than its `gpuMemory`. `Spare`: up to its `gpuMemoryLimit`,
    as long as no other job needs that memory for its own `gpuMemory`. Needs enforcement by the
    driver."""
    protocol: Protocol = MPSProtocol.AUTO
    """Interface of the MPS control daemon. `3` sets the limits of each job on the side of the
    daemon; it needs driver r615. `2` is the interface of older drivers. `Auto`: the newest that
    works on the GPU's node for all jobs."""
    isolation: Isolation = Isolation.NONE
    """`StaticSM`: each job gets its own streaming multiprocessors, an equal share of
    1/maxJobsPerGPU, and a fault on them ends only that job. Idle ones are not lent to other jobs.
    Needs an Ampere or later GPU and driver r610. `None`: jobs share all of them."""
    oversubscription: bool = False
    """Give TensorFlow and JAX jobs unified memory, so that a job may use more than its allocation
    and becomes slower. Other frameworks do not support it; their jobs have an Event about it."""
    unknown_processes: UnknownProcessesPolicy = UnknownProcessesPolicy.REPORT
    """What happens to processes that use a GPU without an allocation. `Report` counts them in the
    GPUServer's status. `Terminate` also terminates those that run in Pods; processes of the node
    itself are never terminated."""

    @property
    def partition_share(self) -> int | None:
        """Percent of the SMs that each container of a job gets; None without static partitions."""
        return 100 // self.max_jobs_per_gpu if self.isolation is Isolation.STATIC_SM else None
