"""The cluster's state for display: GPUs, their slices, and the queue. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from partita.claims.workload_view import WorkloadView, job_view
from partita.claims.workloads import all_workloads, job_workload
from partita.models import GPUPartition, GPUServer, Phase, SharedGPUJob
from partita.models.partition_status import GPUSummary
from partita.models.quantities import seconds_since
from partita.scheduling.gpu_state import server_state
from partita.scheduling.reasons import stalled
from partita.store.allocations import user_of
from partita.store.state import State

__all__ = [
    "GPUView",
    "PartitionView",
    "Partitions",
    "SliceView",
    "active_jobs",
    "partitions_view",
]


@dataclass(frozen=True, slots=True)
class SliceView:
    """The slice of one job or workload on a GPU; memory in bytes."""

    uid: str
    """UID of the job, or of the claim of a Pod that belongs to none."""
    namespace: str
    name: str
    """Name of the job, or of the workload's Pod."""
    attempt: int
    memory: int
    used: int | None
    """None for readers who may not read GPUServers."""
    thread_percent: int
    memory_limit: int | None = None
    """Most memory that the job may use if that is more than `memory`."""
    workload: str = ""
    """Application of a workload; empty for a job."""
    lasting: bool = False
    """Whether it never ends by itself."""
    idle: float | None = None
    """Seconds for which none of its kernels has run; None if one ran in the last minute."""


@dataclass(frozen=True, slots=True)
class GPUView:
    """One GPU of a partition; memory in bytes, of which `allocatable` may be allocated."""

    name: str
    node: str
    product: str
    state: str
    allocatable: int
    allocated: int
    used: int | None
    """None for readers who may not read GPUServers, as the utilization."""
    utilization: int | None
    slices: tuple[SliceView, ...]
    unknown: int = 0
    """Number of processes that use the GPU without an allocation."""
    unknown_memory: int = 0
    """Memory of these processes."""

    @property
    def borrowed(self) -> int:
        """Memory that jobs with a ceiling use above their guarantee."""
        return sum(max(0, (p.used or 0) - p.memory) for p in self.slices if p.memory_limit)

    enforcement: str = ""
    """What limits the GPU memory of its jobs: `Driver` or `Client`; empty if it is not known."""
    message: str = ""
    """Why it takes no jobs, if the operator knows."""
    unseen: int = 0
    """Number of jobs and workloads on it that are not in `slices`: the reader may not see whose."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition, or the name of a missing partition for which jobs wait."""

    name: str
    exists: bool
    mode: str
    policy: str
    wanted: int
    trouble: str
    gpus: tuple[GPUView, ...]
    queue: tuple[WorkloadView, ...]
    """The jobs and workloads that wait, in order."""
    workloads: tuple[WorkloadView, ...] = ()
    """The workloads with a slice."""
    objective: str = ""
    """What the policy's decisions shall achieve."""
    unseen: int = 0
    """Number of waiting jobs and workloads that are not in `queue`: the reader may not see them."""

    @property
    def ready(self) -> int:
        """Number of GPUs that accept jobs."""
        return sum(gpu.state == "Ready" for gpu in self.gpus)

    @property
    def waiting(self) -> int:
        """Number of jobs and workloads that wait for a GPU."""
        return sum(not one.held_back for one in self.queue) + self.unseen

    @property
    def running(self) -> int:
        """Number of jobs and workloads with a slice."""
        seen = {piece.uid for gpu in self.gpus for piece in gpu.slices}
        return len(seen) + sum(gpu.unseen for gpu in self.gpus)


Partitions = list[PartitionView]


def partitions_view(state: State, now: datetime) -> Partitions:
    """Return all partitions in order of name, including missing ones for which jobs wait."""
    workloads: dict[str, list[WorkloadView]] = {}
    for workload in (one for one in all_workloads(state) if one.partition):
        workloads.setdefault(workload.partition, []).append(workload)
    asked = {job.spec.partition for job in state.jobs.values() if _waits(job)} | workloads.keys()
    return [
        _partition(name, state, workloads.get(name, ()), now)
        for name in sorted(asked | state.partitions.keys())
    ]


def _partition(
    name: str, state: State, workloads: Sequence[WorkloadView], now: datetime
) -> PartitionView:
    partition = state.partitions.get(name)
    queue = [job_workload(job, state) for job in state.jobs_of(name) if _waits(job)]
    queue += [one for one in workloads if one.waits]
    waiting = tuple(sorted(queue, key=lambda view: _order(view, now)))
    if partition is None:
        return PartitionView(name, False, "", "", 0, "", (), waiting)  # noqa: FBT003
    degraded = next((c for c in partition.status.conditions if c.type == "Degraded"), None)
    policy = partition.status.policy
    gpus = tuple(_gpu(server, partition, state, now) for server in state.servers_of(name))
    unseen = 0
    if not gpus and (summary := partition.status.gpu_summary):
        queued = partition.status.queue.queued if partition.status.queue else 0
        unseen = max(0, queued - sum(not one.held_back for one in waiting))
        have = [*active_jobs(name, state), *(one for one in workloads if not one.waits)]
        gpus = tuple(_summarized(gpu, have) for gpu in summary)
    return PartitionView(
        name=name,
        exists=True,
        mode=partition.spec.sharing.mode.value,
        policy=policy.active if policy and policy.active else partition.spec.policy.name,
        wanted=partition.spec.gpus,
        trouble=degraded.message if degraded and degraded.status == "True" else "",
        gpus=gpus,
        queue=waiting,
        workloads=tuple(one for one in workloads if not one.waits),
        objective=partition.spec.objective.value,
        unseen=unseen,
    )


def active_jobs(partition: str, state: State) -> list[WorkloadView]:
    """Return the jobs of a partition that have a slice."""
    active = {Phase.ASSIGNED, Phase.RUNNING}
    jobs = (job for job in state.jobs_of(partition) if job.status.phase in active)
    return [job_view(job, job.status.assignment) for job in jobs]


def _gpu(server: GPUServer, partition: GPUPartition, state: State, now: datetime) -> GPUView:
    status = server.status
    usage = status.usage
    slices = []
    entries = sorted(status.allocations.items(), key=lambda entry: (entry[1].since, entry[0]))
    for uid, allocated in entries:
        seen = status.uses.get(uid)
        idle_since = seen.idle_since if seen else None
        slices.append(
            SliceView(
                uid=user_of(uid, allocated),
                namespace=allocated.namespace,
                name=allocated.user,
                attempt=allocated.attempt,
                memory=allocated.memory,
                used=seen.memory if seen else 0,
                thread_percent=allocated.thread_percent,
                memory_limit=allocated.memory_limit,
                workload="" if allocated.job else allocated.application or "Pod",
                lasting=allocated.lasting,
                idle=seconds_since(idle_since, now) if idle_since is not None else None,
            )
        )
    unknown = usage.unknown_processes if usage else None
    name = server.metadata.name
    return GPUView(
        name=name,
        node=status.node,
        product=status.product,
        state=server_state(server, partition, state),
        allocatable=partition.spec.allocatable(status.memory),
        allocated=sum(piece.memory for piece in slices),
        used=usage.memory if usage else 0,
        utilization=usage.gpu_utilization if usage else 0,
        slices=tuple(slices),
        unknown=unknown.count if unknown else 0,
        unknown_memory=unknown.memory if unknown else 0,
        enforcement=status.enforcement or "",
        message=next((s.message for s in partition.status.gpu_summary if s.name == name), ""),
    )


def _summarized(gpu: GPUSummary, have: Sequence[WorkloadView]) -> GPUView:
    """Return a GPU as its partition has it, for readers who may not read GPUServers.

    Parameters
    ----------
    have
        The jobs and workloads with a slice that the reader may see.
    """
    slices = tuple(
        SliceView(
            uid=view.uid,
            namespace=view.namespace,
            name=view.name,
            attempt=0,
            memory=view.memory or 0,
            used=None,
            thread_percent=view.threads or 100,
            memory_limit=view.memory_limit,
            workload=view.pod_of,
            lasting=view.lasting,
        )
        for view in have
        if view.place is not None and gpu.name in view.place.server.split(", ")
    )
    return GPUView(
        name=gpu.name,
        node=gpu.node,
        product=gpu.product,
        state=gpu.state,
        allocatable=gpu.memory,
        allocated=gpu.allocated,
        used=None,
        utilization=None,
        slices=slices,
        enforcement=gpu.enforcement or "",
        message=gpu.message,
        unseen=max(0, gpu.jobs - len(slices)),
    )


def _waits(job: SharedGPUJob) -> bool:
    return job.status.phase in {None, Phase.QUEUED, Phase.SUSPENDED}


def _order(view: WorkloadView, now: datetime) -> tuple[bool, bool, bool, int, float, str]:
    """Return the sort key: the queue, then what cannot start, then what is held back."""
    return (
        view.held_back,
        stalled(view.reason),
        view.position is None,
        view.position or 0,
        -seconds_since(view.created, now),
        view.key,
    )
