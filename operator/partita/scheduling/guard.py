"""The guard: checks a policy's placements before they are allocated.

It enforces the invariants of the ledger. If a placement breaks a rule that the policy can check
from its snapshot, the policy's whole answer is rejected. A placement is only left out if it breaks
a rule that is not in the snapshot (a quota), or became invalid while the policy ran.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from partita.models.partition import Quota
from partita.pods.requests import Requests
from partita.scheduling.ledger import Held
from partita.scheduling.node_resources import offered
from partita.scheduling.quotas import (
    RESOURCE_NAMES,
    over_guarantees,
    over_memory_quota,
    over_quota,
    over_share,
)
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita_policies.amounts import GPUAmounts, amounts_of, capacity_of, held_by, total_of
from partita_policies.capacity import CapacityShortage, FreeCapacity
from partita_policies.lasting import only_lasting
from partita_policies.running_jobs import running_job
from partita_policies.types import GPU, Job, Node, Placement, RunningJob, Snapshot

__all__ = ["Guard", "GuardResult"]

_NAMED = 8
"""Maximum number of GPUs named in a message about a placement."""


@dataclass(slots=True)
class GuardResult:
    """Result of checking a policy's answer."""

    accepted: list[tuple[Job, tuple[str, ...]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Which rules placements break that the policy can check from its snapshot."""


@dataclass(eq=False)
class Guard:
    """Checks placements in order, each against the allocations made before it.

    Parameters
    ----------
    gpus
        The GPUs on which jobs can be placed, in their current state (not that of the snapshot).
    waiting
        The jobs that may be placed, by id.
    waits
        Returns whether one of these still waits.
    quotas
        The namespaces' quotas.
    held
        The namespaces' allocations, to which those of this cycle are added.
    services_percent
        Most that lasting jobs may have together, in percent of each resource of all GPUs.
    left
        Free CPU, memory and ephemeral storage of the GPUs' nodes. A node that is not listed is not
        checked.
    """

    gpus: Sequence[GPU]
    waiting: Mapping[str, Job]
    quotas: Mapping[str, Quota]
    held: dict[str, Held]
    waits: Callable[[str], bool] = lambda _: True
    services_percent: int = 100
    left: Mapping[str, Requests] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gpus = self.gpus
        self.nodes = {node.id: node for node in offered(self.left, gpus)}
        self.capacity = FreeCapacity(gpus, tuple(self.nodes.values()))
        self.held = dict(self.held)
        self._new: dict[str, list[RunningJob]] = {}
        self.total = capacity_of(gpus)
        """What the GPUs have."""
        self.services_limit = self.total.percent(self.services_percent)
        """Most that lasting jobs may have together."""
        self._lasting = held_by(gpus, lasting=True)
        self._lasting_of: Counter[str] = Counter()
        """Bytes of lasting jobs by namespace."""
        for gpu in gpus:
            for one in gpu.running:
                if one.lasting:
                    self._lasting_of[one.namespace] += amounts_of(one, gpu).memory
        self._smallest = min(gpus, key=lambda gpu: gpu.memory, default=None)
        self._limits: dict[tuple[object, ...], WaitingReason | None] = {}
        """The limits of jobs that ask for the same, until another job is placed."""

    def check(self, placements: Iterable[Placement], snapshot: Snapshot) -> GuardResult:
        """Check a policy's answer to a snapshot, in order, and allocate the valid placements."""
        verdict = GuardResult()
        jobs, seen = (
            {job.id: job for job in snapshot.jobs},
            FreeCapacity(snapshot.gpus, snapshot.nodes),
        )
        for placement in placements:
            if why := _nonsense(placement, jobs, seen):
                verdict.broken.append(why)
                continue
            seen.take(jobs[placement.job], placement.gpus)
            if not self.refusal(placement.job, placement.gpus):
                job = self.waiting[placement.job]
                self.accept(job, placement.gpus)
                verdict.accepted.append((job, placement.gpus))
        return verdict

    def refusal(self, job_id: str, gpus: Sequence[str]) -> str:
        """Return why a job cannot start on these GPUs now; empty if it can."""
        job = self._found(job_id)
        if job is None:
            return "the job waits no longer"
        why = self.capacity.why_not_together(job, gpus)
        if why is not None:
            return f"{job.name} cannot have {_names(gpus)} any more: {why.value}"
        limit = self.limit_on(job, gpus)
        return limit.message if limit else ""

    def _found(self, job_id: str) -> Job | None:
        job = self.waiting.get(job_id)
        return job if job is not None and self.waits(job_id) else None

    def remaining(self) -> tuple[GPU, ...]:
        """Return the GPUs with their allocations, including those of this cycle."""
        return tuple(
            replace(gpu, running=(*gpu.running, *self._new[gpu.id])) if gpu.id in self._new else gpu
            for gpu in self.gpus
        )

    def at_end(self) -> FreeCapacity:
        """Return the free capacity once all jobs that end have ended."""
        gpus = (only_lasting(gpu) for gpu in self.remaining())
        return FreeCapacity(gpus, tuple(self.nodes.values()))

    def remaining_nodes(
        self, gpus: Sequence[GPU], held: Mapping[str, Sequence[str]]
    ) -> tuple[Node, ...]:
        """Return the resources of nodes that a policy may use for jobs on some GPUs.

        Parameters
        ----------
        gpus
            These GPUs, with the allocations of this cycle.
        held
            GPUs held for each job, by its UID. The job's node resources are held as well.
        """
        hosts = self.capacity.hosts
        if hosts is None:
            return ()
        left = {name: Requests(*(hosts.left(name) or ())) for name in self.nodes}
        for job_id, theirs in held.items():
            job, node = self._found(job_id), self.capacity[theirs[0]].gpu.node
            if job is not None and node in left:
                was = left[node]
                left[node] = Requests(
                    was.cpu - job.cpu, was.memory - job.host_memory, was.storage - job.host_storage
                )
        return offered(left, gpus)

    def least_taken(self, job: Job) -> GPUAmounts:
        """Return the minimum that a job takes, on the smallest available GPUs."""
        on_each = _taken(job, [self._smallest] if self._smallest is not None else [])
        # Only a multiple: a claim may name any number of GPUs.
        return on_each._replace(memory=max(on_each.memory, job.memory)).times(job.gpus)

    def limit_on(
        self, job: Job, gpus: Sequence[str], *, lasting: GPUAmounts | None = None
    ) -> WaitingReason | None:
        """Return the limit that a job would exceed on these GPUs; `lasting` as below."""
        there = [self.capacity[gpu].gpu for gpu in gpus]
        return self._limit_reached(job, _taken(job, there), lasting=lasting)

    def limit_anywhere(
        self, job: Job, *, lasting: GPUAmounts | None = None
    ) -> WaitingReason | None:
        """Return the limit that a job would exceed on every GPU; `lasting` as below."""
        if not job.lasting and job.namespace not in self.quotas:
            return None  # as for most jobs, of which each cycle asks
        if lasting is not None:
            return self._limit_reached(job, self.least_taken(job), lasting=lasting)
        asks = job.memory, job.context_memory, job.gpus, job.slots, job.clients
        key = (job.namespace, job.lasting, *asks, job.alone, job.alone_by_faults)
        if key not in self._limits:
            self._limits[key] = self._limit_reached(job, self.least_taken(job))
        return self._limits[key]

    def _limit_reached(
        self, job: Job, taken: GPUAmounts, *, lasting: GPUAmounts | None = None
    ) -> WaitingReason | None:
        """Return the limit of its namespace or of all services that a job would exceed.

        Parameters
        ----------
        taken
            What the job takes of its GPUs.
        lasting
            What the other lasting jobs will have when the job starts; None for what they have now.
        """
        held, quota = self.held.get(job.namespace, Held()), self.quotas.get(job.namespace)
        memory = taken.memory - job.context_memory * job.gpus
        if said := over_quota(job, quota, held, memory) or over_share(job, quota, held, self.total):
            return WaitingReason(Reason.QUOTA_EXCEEDED, said)
        if not job.lasting:
            return None
        return self._lasting_limit(job, taken, self._lasting if lasting is None else lasting)

    def _lasting_limit(self, job: Job, needed: GPUAmounts, has: GPUAmounts) -> WaitingReason | None:
        """Return the limit of lasting jobs that one more would exceed."""
        quotas, total = self.quotas, self.total.memory
        if said := over_guarantees(job, needed.memory, self._lasting_of, quotas, total):
            return WaitingReason(Reason.SERVICES_LIMIT, said)
        exceeded = has.plus(needed).exceeded(self.services_limit)
        # Without a GPU there is no share of services: then that is why it waits.
        if not self.gpus or not exceeded:
            return None
        amounts = [getattr(each, exceeded) for each in (self.services_limit, has, needed)]
        if exceeded == "memory":
            may, have, asks = map(gib, amounts)
            what = "of GPU memory"
        else:
            may, have, asks = map(str, amounts)
            what = RESOURCE_NAMES[exceeded]
        return WaitingReason(
            Reason.SERVICES_LIMIT,
            f"services may have {may} {what} together "
            f"(services.percent {self.services_percent}), have {have}, and this needs {asks}: "
            "request less, scale another service down, or raise services.percent",
        )

    def not_grown(self, job: Job, gpu: str) -> WaitingReason | None:
        """Return why a running job cannot have more memory on its GPU now; None if it can.

        Parameters
        ----------
        job
            The job with the memory that it is to have.
        """
        free = self.capacity[gpu]
        more = job.memory - free.holders[job.id].memory
        held = self.held.get(job.namespace, Held())
        quota = self.quotas.get(job.namespace)
        if said := over_memory_quota(job.namespace, quota, held, more):
            return WaitingReason(Reason.QUOTA_EXCEEDED, said)
        if job.lasting and (limit := self._lasting_limit(job, GPUAmounts(more), self._lasting)):
            return limit
        if more <= free.memory:
            return None
        said = f"it needs {gib(more)} more, and {gpu} has {gib(max(0, free.memory))} free"
        return WaitingReason(Reason.INSUFFICIENT_MEMORY, said)

    def grow(self, job: Job, gpu: str) -> None:
        """Record that a running job gets more memory on its GPU, in this guard only."""
        more = job.memory - self.capacity[gpu].holders[job.id].memory
        self.capacity.resize(job.id, job.memory)
        self.gpus = tuple(_resized(g, job) if g.id == gpu else g for g in self.gpus)
        self._add(job, GPUAmounts(more), GPUAmounts(more), jobs=0)

    def accept(self, job: Job, gpus: Sequence[str]) -> None:
        """Record a checked placement as allocated, in this guard only."""
        taken = _taken(job, [self.capacity[gpu].gpu for gpu in gpus])
        self.capacity.take(job, gpus)
        for gpu in gpus:
            self._new.setdefault(gpu, []).append(self.running_job(job, gpu))
        charged = GPUAmounts(
            taken.memory - job.context_memory * len(gpus),
            job.slots * len(gpus),
            job.clients * len(gpus),
        )
        self._add(job, charged, taken, jobs=1)

    def _add(self, job: Job, charged: GPUAmounts, taken: GPUAmounts, *, jobs: int) -> None:
        """Count amounts that are charged to a job's namespace, and those that it takes of GPUs."""
        self._limits.clear()
        held = self.held.get(job.namespace, Held())
        self.held[job.namespace] = Held(held.amounts.plus(charged), held.jobs + jobs)
        if job.lasting:
            self._lasting = self._lasting.plus(taken)
            self._lasting_of[job.namespace] += taken.memory

    def running_job(self, job: Job, gpu: str) -> RunningJob:
        """Return a job as a running job on a GPU, with its allocation there."""
        taken = _taken(job, [self.capacity[gpu].gpu])
        return replace(running_job(job), memory=taken.memory)


def _taken(job: Job, gpus: Iterable[GPU]) -> GPUAmounts:
    """Return what a job takes of these GPUs; one that is alone takes all of them.

    A job that is alone because its GPUs faulted takes only its own. Otherwise a small quota could
    prevent a job from running again because of other jobs' faults.
    """
    if job.alone and job.alone_by_faults:
        job = replace(job, alone=False)
    return total_of(amounts_of(job, gpu) for gpu in gpus)


def _resized(gpu: GPU, job: Job) -> GPU:
    """Return a GPU on which a running job has the memory of `job`."""
    running = (replace(b, memory=job.memory) if b.job == job.id else b for b in gpu.running)
    return replace(gpu, running=tuple(running))


def _nonsense(placement: Placement, jobs: Mapping[str, Job], seen: FreeCapacity) -> str:
    """Return which rule a placement breaks according to the snapshot; empty if none."""
    job = jobs.get(placement.job)
    if job is None:
        return f"there is no job {placement.job}"
    why = seen.why_not_together(job, placement.gpus)
    if why is CapacityShortage.UNKNOWN:
        return f"there is no GPU {next(gpu for gpu in placement.gpus if gpu not in seen)}"
    return f"{job.name} cannot have {_names(placement.gpus)}: {why.value}" if why else ""


def _names(gpus: Sequence[str]) -> str:
    return ", ".join(gpus[:_NAMED]) or "no GPU"
