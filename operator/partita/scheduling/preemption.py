"""Choice of the running jobs to end for a waiting job.

Who may be ended for whom is in `partita.scheduling.endable`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from partita.models import Allocation, Outcome, SharedGPUJob
from partita.scheduling.endable import NOTHING, Endable
from partita.scheduling.guard import Guard
from partita.store.state import State
from partita_policies.amounts import GPUAmounts, amounts_of, held_by
from partita_policies.capacity import FreeCapacity
from partita_policies.hosts import Hosts
from partita_policies.types import GPU, Job, Node, RunningJob

__all__ = [
    "EarlierHolds",
    "Preemption",
    "PreemptionOutlook",
    "Victims",
    "victims_for",
    "without_jobs",
]

TERMINATION_SLACK = timedelta(seconds=15)
"""Time after the grace period in which kubelet kills the containers and reports it (an assumption).
If a victim still exists after that, other GPUs are chosen for its preemptor."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Running jobs to end for a waiting job."""

    job: Job
    gpus: tuple[str, ...]
    """GPUs on which the job will start."""
    victims: tuple[RunningJob, ...]
    idle: frozenset[str] = frozenset()
    """UIDs of the victims that are ended because they are idle."""


class PreemptionOutlook:
    """Future state of GPUs: without the jobs being ended, and with those that replace them.

    Parameters
    ----------
    gpus
        The GPUs on which jobs can be placed, with their current allocations.
    leaving
        UIDs of jobs that are being ended.
    nodes
        Total node resources for the jobs on these GPUs.
    """

    def __init__(
        self, gpus: Iterable[GPU], leaving: Collection[str], nodes: Iterable[Node] = ()
    ) -> None:
        self._gpus = {gpu.id: without_jobs(gpu, leaving) for gpu in gpus}
        self.hosts = Hosts(nodes)
        """Future free resources of each node."""
        on_nodes = {(g.node, b.job): b for g in self._gpus.values() for b in g.running}
        for (node, _), running_job in on_nodes.items():
            self.hosts.take(node, running_job)
        self._taken: dict[str, tuple[str, ...]] = {}

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._taken

    @property
    def gpus(self) -> list[GPU]:
        """The GPUs."""
        return list(self._gpus.values())

    @property
    def held(self) -> dict[str, GPUAmounts]:
        """What each namespace will hold."""
        found: dict[str, GPUAmounts] = {}
        for gpu in self._gpus.values():
            for one in gpu.running:
                before = found.get(one.namespace, GPUAmounts())
                found[one.namespace] = before.plus(amounts_of(one, gpu))
        return found

    @property
    def lasting(self) -> GPUAmounts:
        """What lasting jobs will hold."""
        return held_by(self._gpus.values(), lasting=True)

    def fits(self, job: Job, *gpus: str) -> bool:
        """Return whether a job will fit on each of these GPUs."""
        there = [self._gpus[gpu] for gpu in gpus if gpu in self._gpus]
        capacity = FreeCapacity(there)
        return len(there) == len(gpus) and all(
            capacity.why_not(job, gpu.id) is None and self.hosts.has(gpu.node, job) for gpu in there
        )

    def take(self, job: Job, gpus: tuple[str, ...], guard: Guard) -> None:
        """Add a job to these GPUs."""
        self._taken[job.id] = gpus
        self.hosts.take(self._gpus[gpus[0]].node, job)
        for name in gpus:
            gpu = self._gpus[name]
            running = (*gpu.running, guard.running_job(job, name))
            self._gpus[name] = replace(gpu, running=running)

    def drop(self, job_id: str) -> None:
        """Remove a job from all GPUs."""
        self._taken.pop(job_id, None)
        dropped: dict[str, RunningJob] = {}
        for name, gpu in self._gpus.items():
            for running_job in gpu.running:
                if running_job.job == job_id:
                    dropped[gpu.node] = running_job
            self._gpus[name] = without_jobs(gpu, (job_id,))
        for node, running_job in dropped.items():
            self.hosts.give_back(node, running_job)


class EarlierHolds:
    """Finds the GPUs that an earlier operator held: its preemptors are not stored anywhere.

    A job that waits is one if it fits once the jobs that are being ended are gone, and it may end
    one of them.

    Parameters
    ----------
    gpus
        The GPUs with their current allocations.
    leaving
        UIDs of the jobs that are being ended.
    endable
        Which jobs may be ended.
    """

    def __init__(self, gpus: Iterable[GPU], leaving: Collection[str], endable: Endable) -> None:
        self._endable = endable
        self._leaving = {
            gpu.id: there for gpu in gpus if (there := [b for b in gpu.running if b.job in leaving])
        }

    def of(self, job: Job, outlook: PreemptionOutlook) -> tuple[str, ...]:
        """Return the GPUs that are held again for a job; empty if none are."""
        left = {
            gpu
            for gpu, there in self._leaving.items()
            if any(self._endable.allows(victim, job) for victim in there)
        }
        if not left:
            return ()
        nobody = Endable(lower_priority=False)
        nodes = {gpu.node for gpu in outlook.gpus if gpu.id in left}
        near = [gpu for gpu in outlook.gpus if gpu.node in nodes]
        found = victims_for(job, near, endable=nobody, hosts=outlook.hosts)
        return found[0] if found is not None and left & set(found[0]) else ()


class Victims:
    """Preempted jobs that still hold GPUs, with the times by which they should have ended."""

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def add(self, job_id: str, since: datetime, grace: float) -> datetime:
        """Record that a job is preempted; return the time by which it should have ended.

        Parameters
        ----------
        grace
            Grace period of its Pod, in seconds.
        """
        self._until[job_id] = since + timedelta(seconds=grace) + TERMINATION_SLACK
        return self._until[job_id]

    def discard(self, job_id: str) -> None:
        """Remove a job that is not preempted after all."""
        self._until.pop(job_id, None)

    def update(self, allocated: AbstractSet[str], state: State, grace: float) -> None:
        """Remove jobs without allocations; add those that others have ended.

        These are jobs that another operator preempted, and those whose Pods are being deleted.
        """
        for job_id in self._until.keys() - allocated:
            del self._until[job_id]
        for job_id in allocated - self._until.keys():
            entries = state.allocated(job_id)
            if (end := _pod_end(entries, state)) is not None:
                self._until[job_id] = end + TERMINATION_SLACK
                continue
            since = _preempted_at(state.jobs.get(state.user_of(job_id)), entries)
            if since is not None:
                self.add(job_id, since, grace)

    def leaving(self, now: datetime) -> dict[str, datetime]:
        """Return the jobs whose time has not passed."""
        return {job_id: until for job_id, until in self._until.items() if until > now}

    def overdue(self, now: datetime) -> set[str]:
        """Return the jobs that should have ended."""
        return self._until.keys() - self.leaving(now).keys()


def _pod_end(allocated: Mapping[str, Allocation], state: State) -> datetime | None:
    """Return when the Pod of an allocation is killed, if it is being deleted."""
    pods = (state.pods.get(entry.pod_uid) for entry in allocated.values())
    ends = (pod.deletion_time for pod in pods if pod is not None and pod.node)
    return max((end for end in ends if end is not None), default=None)


def _preempted_at(job: SharedGPUJob | None, allocated: Mapping[str, Allocation]) -> datetime | None:
    """Return when a job's allocated attempt was preempted, or None if it was not."""
    numbers = {allocation.attempt for allocation in allocated.values()}
    for attempt in job.status.attempts[-1:] if job else ():
        if attempt.number in numbers and attempt.outcome is Outcome.PREEMPTED:
            return attempt.end_time
    return None


def without_jobs(gpu: GPU, jobs: Collection[str]) -> GPU:
    """Return a GPU without some of its running jobs."""
    if all(running_job.job not in jobs for running_job in gpu.running):
        return gpu
    return replace(gpu, running=tuple(b for b in gpu.running if b.job not in jobs))


_LOWER_PRIORITY, _UNKNOWN_HOSTS = Endable(), Hosts(())


def victims_for(
    job: Job,
    gpus: Sequence[GPU],
    *,
    endable: Endable = _LOWER_PRIORITY,
    hosts: Hosts = _UNKNOWN_HOSTS,
    spared: Collection[str] = (),
    services_room: GPUAmounts | None = None,
) -> tuple[tuple[str, ...], tuple[RunningJob, ...]] | None:
    """Find the GPUs with the cheapest victims for a job to fit.

    Idle workloads are chosen first, then those of the lowest priority, among equals those of the
    namespace with the largest dominant share, and of these the one that started last, because it
    loses the least work. No job is ended without need.

    Parameters
    ----------
    gpus
        The GPUs on which jobs can be placed, with their current allocations.
    endable
        Which jobs may be ended.
    hosts
        Free resources of their nodes.
    spared
        GPUs that are held for other jobs.
    services_room
        What a lasting job may get beside the lasting jobs on these GPUs; None for no limit.
        Those that are ended on its GPU give it theirs.

    Returns
    -------
    tuple or None
        The GPUs and the victims on them; None if ending jobs of lower priority is not enough.
    """
    nodes: dict[str, list[_Option]] = {}
    for gpu in gpus:
        needs = _Needs(job, gpu, hosts.left(gpu.node), services_room)
        victims = None if gpu.id in spared else _victims_on(needs, endable)
        if victims is not None:
            highest = max(map(endable.cost, victims), default=NOTHING)
            nodes.setdefault(gpu.node, []).append(_Option(gpu.id, victims, highest))
    choices = [
        sorted(options, key=lambda option: option.cost)[: job.gpus]
        for options in nodes.values()
        if len(options) >= job.gpus
    ]
    if not choices:
        return None
    best = min(choices, key=lambda options: [max(o.cost[0] for o in options), *_costs(options)])
    victims_by_id = {victim.job: victim for option in best for victim in option.victims}
    return tuple(sorted(option.gpu for option in best)), tuple(victims_by_id.values())


@dataclass(frozen=True, slots=True)
class _Option:
    """One GPU, with the jobs to end so that the job fits there."""

    gpu: str
    victims: tuple[RunningJob, ...]
    highest: int
    """The highest priority of a victim that is not idle."""

    @property
    def cost(self) -> tuple[int, int, str]:
        return self.highest, len(self.victims), self.gpu


def _costs(options: Sequence[_Option]) -> tuple[int, str]:
    return sum(len(option.victims) for option in options), options[0].gpu


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a job needs on a GPU."""

    job: Job
    gpu: GPU
    left: tuple[int, ...] | None
    """Free resources of the node; None if they are not checked."""
    services_room: GPUAmounts | None

    def met(self, capacity: FreeCapacity, without: Sequence[RunningJob]) -> bool:
        """Return whether the job can start.

        Parameters
        ----------
        capacity
            The free capacity of the GPU once the jobs `without` have ended.
        """
        return (
            capacity.why_not(self.job, self.gpu.id) is None
            and self._has_host(without)
            and self._has_share(without)
        )

    def _has_host(self, without: Sequence[RunningJob]) -> bool:
        """Return whether the node has enough once the jobs `without` have ended."""
        if self.left is None:
            return True
        amounts = zip(_asked(self.job), self.left, *map(_asked, without), strict=True)
        return all(not asked or asked <= sum(have) for asked, *have in amounts)

    def _has_share(self, without: Sequence[RunningJob]) -> bool:
        """Return whether services may have so much once the jobs `without` have ended."""
        if self.services_room is None or not self.job.lasting:
            return True
        needed = amounts_of(self.job, self.gpu).times(self.job.gpus)
        ended = held_by([replace(self.gpu, running=tuple(without))], lasting=True)
        return not needed.exceeded(self.services_room.plus(ended.times(self.job.gpus)))


def _asked(holder: RunningJob | Job) -> tuple[int, int, int]:
    return holder.cpu, holder.host_memory, holder.host_storage


def _victims_on(needs: _Needs, endable: Endable) -> tuple[RunningJob, ...] | None:
    """Return a minimal set of jobs to end on a GPU for a job to start; None if it cannot."""
    gpu = needs.gpu
    able = [b for b in gpu.running if endable.allows(b, needs.job)]
    able.sort(
        key=lambda b: (
            endable.cost(b),
            -endable.shares.get(b.namespace, 0.0),
            -inf if b.started is None else -b.started,
            b.job,
        )
    )
    capacity, victims = FreeCapacity([gpu]), list[RunningJob]()
    while not needs.met(capacity, victims):
        if len(victims) == len(able):
            return None
        victims.append(able[len(victims)])
        capacity.give_back(victims[-1].job)
    for running_job in reversed(victims[:-1]):
        others = [victim for victim in victims if victim is not running_job]
        left = without_jobs(gpu, {victim.job for victim in others})
        if needs.met(FreeCapacity([left]), others):
            victims = others
    return tuple(victims)
