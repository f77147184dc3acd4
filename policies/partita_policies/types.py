"""Input and output of a policy: plain frozen data, no Kubernetes, no I/O.

Memory is in bytes, durations in seconds, utilisation in percent of one GPU (0 to 100).
The bounds of the fields are checked when a recorded snapshot is read
(`partita_policies.snapshot_json`), not on every construction: the operator's models ensure them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

__all__ = [
    "GPU",
    "SCHEMA_VERSION",
    "CoRun",
    "Job",
    "Node",
    "Objective",
    "Parameters",
    "Placement",
    "Policy",
    "Profile",
    "RunningJob",
    "Sharing",
    "Snapshot",
    "Step",
]

SCHEMA_VERSION = 3
"""Version of a recorded `Snapshot`; incremented when a field changes its meaning."""

Natural = Annotated[int, Field(ge=0)]
Bytes = Natural
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
Percent = Annotated[int, Field(ge=0, le=100)]
Names = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str])]
"""A set in a program, a sorted list in a recording."""

_DATA = ConfigDict(extra="forbid", allow_inf_nan=False)


class Sharing(StrEnum):
    """How the jobs on one GPU share it."""

    MPS = "MPS"
    TIME_SLICING = "TimeSlicing"
    EXCLUSIVE = "Exclusive"


class Objective(StrEnum):
    """What the decisions of a partition shall achieve, as far as its policy can."""

    MAKESPAN = "Makespan"
    """The waiting jobs end soon, all of them together: the most work per second."""
    COMPLETION = "Completion"
    """The mean time from a job's submission to its end is short."""
    PACKING = "Packing"
    """As much memory and as many GPUs as possible can be allocated before a job does not fit."""
    BALANCED = "Balanced"
    """Packing while the waiting jobs ask for more memory than is free, completion otherwise."""


@dataclass(frozen=True, slots=True)
class Step:
    """Resource use of an application during one of the equal time steps of its profile.

    The four resources are those of the DqnGPU study, section III.2.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    gpu: Amount
    """GPU utilisation, percent."""
    memory: Bytes
    """GPU memory in use, bytes."""
    core: Amount = 0.0
    """SM occupancy, percent."""
    pcie: Amount = 0.0
    """PCIe throughput, bytes per second."""
    bandwidth: Amount = 0.0
    """Share of the time in which the GPU's memory is read or written, percent: NVML's memory
    utilisation. 0: not measured."""


@dataclass(frozen=True, slots=True)
class CoRun:
    """How much slower than predicted an application was beside another one, under MPS."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    application: str
    """The other application."""
    ratio: Annotated[float, Field(gt=0)]
    """Slowdown that was observed, relative to the predicted one: a mean over runs."""
    samples: Amount
    """Runs that it rests on; a run that was beside the other one for a half of its time, or
    beside two at once, counts for less than one."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Past resource use of an application, measured on a GPU without other jobs."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    application: str
    duration: Amount
    """Seconds of one run."""
    steps: tuple[Step, ...]
    runs: Count = 1
    product: str = ""
    """The GPU product it was measured on; empty when unknown."""
    co_runs: tuple[CoRun, ...] = ()
    """What is known from runs beside other applications; see `partita_policies.co_runs`."""

    @property
    def peak_memory(self) -> int:
        """The largest memory of any step, bytes."""
        return max((step.memory for step in self.steps), default=0)


@dataclass(frozen=True, slots=True)
class Job:
    """A waiting job, with its request already resolved (slices, history, resizes)."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    id: str
    name: str
    namespace: str
    memory: Bytes
    """Bytes to allocate on each of its GPUs. When `alone`, a whole GPU is allocated, and this is
    the least memory that the GPU must have (0 when the job's demand is unknown)."""
    memory_limit: Bytes = 0
    """Bytes that it may use on each GPU while other jobs do not need them: its ceiling, of which
    `memory` is guaranteed. 0: equal to `memory`."""
    context_memory: Bytes = 0
    """Bytes of `memory` and of `memory_limit` for the CUDA contexts of its processes, which the
    driver counts where it limits the job. They are not charged to its namespace."""
    application: str = ""
    thread_percent: Percent = 100
    gpus: Count = 1
    slots: Count = 1
    """Slots it takes on each GPU: one for each container that runs at the same time."""
    clients: Count = 1
    """MPS client processes it starts on each GPU."""
    alone: bool = False
    """It needs GPUs without other jobs: its demand is still unknown, the mode is Exclusive, or its
    GPUs faulted too often."""
    alone_by_faults: bool = False
    """It is alone only because its GPUs faulted: it is charged only for its `memory`."""
    priority: int = 0
    duration: Amount | None = None
    """Expected seconds on an idle GPU; None when unknown."""
    submitted: Amount = 0.0
    """Creation time, seconds since the epoch."""
    bypasses: Natural = 0
    """Cycles in which a job behind this one was started and this one was not."""
    reclaimed: bool = False
    """It was evicted while it used memory above its guarantee: it comes first among the jobs of its
    priority."""
    profile: Profile | None = None
    cpu: Natural = 0
    """Thousandths of a CPU that it takes on its node in total."""
    host_memory: Bytes = 0
    """Bytes of its node's memory that it takes in total."""
    host_storage: Bytes = 0
    """Bytes of its node's ephemeral storage that it takes in total."""
    products: tuple[str, ...] = ()
    """The only GPU products that it may use; empty: any."""
    nodes: Names = frozenset()
    """The only nodes that it may run on, as in `GPU.node`; empty: any."""
    lasting: bool = False
    """It never ends by itself, as a service or a notebook."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds a part of a GPU."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    job: str
    """Id of the job while it has GPUs; it may have waited with another one."""
    memory: Bytes
    """Bytes; when `alone`, the whole GPU counts as allocated, regardless of this value."""
    memory_limit: Bytes = 0
    """As in `Job`."""
    application: str = ""
    namespace: str = ""
    thread_percent: Percent = 100
    slots: Count = 1
    clients: Count = 1
    alone: bool = False
    priority: int = 0
    started: float | None = None
    """Time at which it was allocated, as `Snapshot.time`; None when unknown."""
    duration: Amount | None = None
    profile: Profile | None = None
    cpu: Natural = 0
    """Thousandths of a CPU that the job takes on its node: contained in each of its allocations,
    counted once."""
    host_memory: Bytes = 0
    """Bytes of the node's memory, likewise."""
    host_storage: Bytes = 0
    """Bytes of the node's ephemeral storage, likewise."""
    lasting: bool = False
    """As in `Job`."""

    def elapsed(self, time: float) -> float:
        """Return the seconds since it was allocated; 0 when unknown."""
        return 0.0 if self.started is None else max(time - self.started, 0.0)


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU on which jobs can be placed."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    id: str
    """Name of its GPUServer."""
    node: str
    memory: Bytes
    """Bytes that may be allocated: the capacity less the partition's reserve."""
    max_jobs: Count
    """Total number of slots."""
    max_clients: Count = 48
    """MPS clients of one GPU: 48 on Volta and later
    (https://docs.nvidia.com/deploy/mps/, "Client-Server Connection")."""
    product: str = ""
    sm_count: Natural = 0
    pcie_bandwidth: Bytes = 0
    """Bytes per second; 0 when unknown."""
    sm_partitions: Natural = 0
    """Equal static partitions of its SMs, of which each job has its own; 0: none. The SMs of an
    idle partition are not lent to other jobs."""
    running: tuple[RunningJob, ...] = ()

    def thread_share(self, thread_percent: Percent) -> float:
        """Return the share of the SMs, 0 to 1, that a process limited to a percentage may use."""
        share = (thread_percent or 100) / 100
        return min(share, 1 / self.sm_partitions) if self.sm_partitions else share


@dataclass(frozen=True, slots=True)
class Node:
    """Resources of a node itself that the jobs on its GPUs can use."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    id: str
    """As in `GPU.node`."""
    cpu: Natural
    """Allocatable thousandths of a CPU, including allocated ones."""
    memory: Bytes
    """Allocatable bytes, including allocated ones."""
    storage: Bytes = 0
    """Allocatable bytes of ephemeral storage, including allocated ones."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of one partition at one time: the complete input of a policy.

    `jobs` is in queue order: priority first, then reclaimed jobs, then fair between namespaces,
    then by age.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    partition: str
    time: float
    """Seconds since the epoch."""
    jobs: tuple[Job, ...]
    gpus: tuple[GPU, ...]
    sharing: Sharing = Sharing.MPS
    complete: bool = True
    """False if a listing for it failed; incomplete snapshots are not replayed."""
    nodes: tuple[Node, ...] = ()
    """CPU, memory and ephemeral storage of nodes. Those of an unlisted node are unknown and not
    checked."""
    objective: Objective = Objective.MAKESPAN
    """What the partition's decisions shall achieve. A policy with an aim of its own may ignore
    it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Start this job now on these GPUs."""

    __pydantic_config__: ClassVar[ConfigDict] = _DATA

    job: str
    gpus: tuple[str, ...]


class Parameters(BaseModel):
    """Base of a policy's parameters; an unknown one is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@runtime_checkable
class Policy(Protocol):
    """Decides which waiting jobs start now, and where.

    A policy is built once from its parameters and called once per cycle, in a worker thread
    with a time budget. It must not keep state that changes its decision on the same snapshot.

    A policy that lets jobs wait although they fit may state its rule in an attribute
    `waiting_reason`, a predicate such as "starts one job per GPU". The operator shows it in the
    waiting reason of these jobs, after "policy NAME". With an attribute `in_order` that is true it
    names the first job before each of them, and with a number `slowdown_budget`, the largest
    slowdown that the policy may predict for any job, it compares the prediction with that. A dict
    `kept_for` has, after a decision, of ids of such jobs the id of the job for which the policy
    keeps the room. The operator names that.
    """

    parameters: ClassVar[type[Parameters]]

    def __init__(self, parameters: Parameters) -> None: ...

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Return the placements to make now, in the order in which to try them."""
        ...
