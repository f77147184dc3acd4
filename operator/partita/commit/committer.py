"""Commits a cycle: allocates on every GPU at the same time, then makes the Pods."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import structlog

from partita.commit.job_pods import Created, JobPods, Later
from partita.commit.ledger_writes import write_ledger
from partita.constants import OTHERS_JOB
from partita.decide.cycle_result import CycleResult
from partita.decide.ledger import LedgerChanges, ServerChange, allocations_after, overcommitted
from partita.informer.state import State
from partita.kube.client import JOBS, SERVERS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.kube.fence import fenced
from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.reconcile.agent_reports import max_clients
from partita.reconcile.gpu_state import server_state
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.job_request import allocatable
from partita.reconcile.pod_creation import PodCreation
from partita.reconcile.reasons import Why
from partita_policies.types import Job

__all__ = ["Committer"]

RETRY_AFTER = 2.0
"""Seconds before what could not be written is tried again."""
PODS_WITHIN = 1.0
"""Most seconds for which a cycle waits for its Pods to be created. This slows cycles down when the
API server is slow. An admission webhook that does not answer delays its own jobs alone."""


class Committer:
    """Writes allocations, releases and Pods.

    Parameters
    ----------
    now
        The clock.
    spawn
        Starts a task.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        jobs: JobReconciler,
        events: Events,
        *,
        now: Callable[[], datetime],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.create_task,
    ) -> None:
        self._kube = kube
        self._state = state
        self._jobs = jobs
        self._events = events
        self._now = now
        self._spawn = spawn
        self.pods = JobPods.of(kube, state, events)
        self._postponed: set[str] = set()
        self.busy: set[str] = set()
        """Jobs whose allocations or Pods are being written: they are not planned meanwhile."""
        self._log = structlog.get_logger().bind(part="commit")

    async def commit(
        self, partition: GPUPartition | None, result: CycleResult, changes: LedgerChanges
    ) -> None:
        """Write what a cycle decided.

        Parameters
        ----------
        changes
            What was to be given back when the cycle began; the allocations are added, so that each
            GPU is written once.
        """
        since = self._now()
        placed = {job.id for job, _ in result.placed}
        whole: set[str] = set()
        self.busy |= placed
        try:
            giving_back = await self._still_given_back(changes) - placed
            for job, gpus in result.placed:
                self._jobs.placed(job.id, self._names_on(gpus, result, job))
                self._jobs.creations.allocating(job.id, self._jobs.attempt_of(job.id), since)
                self._log_placed(job, gpus, result)
                for gpu in gpus:
                    changes.allocate(
                        job.id, gpu, self._allocation(job, result.allocated[gpu].memory, since)
                    )
            with self._busy_with(giving_back):
                allocated = await self._write(changes, partition)
            whole = {job.id for job, gpus in result.placed if all(allocated.get(g) for g in gpus)}
        finally:
            # What is allocated in part the next look gives back.
            for uid in placed - whole:
                self._done(uid)
        starting = [self._spawn(self._start(uid)) for uid in whole]
        if starting:
            await asyncio.wait(starting, timeout=PODS_WITHIN)

    @contextmanager
    def _busy_with(self, uids: set[str]) -> Iterator[None]:
        self.busy |= uids
        try:
            yield
        finally:
            for uid in uids:
                self._done(uid)

    async def _still_given_back(self, changes: LedgerChanges) -> set[str]:
        """Leave out what is wanted after all; return the UIDs of who gives back what he has.

        While the policy thought jobs were looked at anew, and may have got their Pods.
        """
        every = changes.by_server
        unknown = {u for c in every.values() for u in c.release} - self._state.jobs.keys()
        there = set(await asyncio.gather(*(self._found(uid) for uid in unknown)))
        for name, change in every.items():
            change.release &= self._jobs.releases[name] - there
        return {uid for change in every.values() for uid in change.release}

    async def _found(self, uid: str) -> str:
        """Look for a job that no watch has told of; return its UID unless it is surely gone.

        Who led until just now may have allocated for it.
        """
        for server, allocated in self._state.allocated(uid).items():
            try:
                body = await self._kube.get(JOBS, allocated.name, allocated.namespace)
            except NotFoundError:
                return ""
            except KubernetesError as error:
                self._log.warning("job not read", job=allocated.name, error=str(error))
                self._again(server)
                return uid
            if body["metadata"]["uid"] == uid:
                self._state.apply_job(body)
        return uid if uid in self._state.jobs else ""

    async def finish(self, job: SharedGPUJob, attempt: int) -> None:
        """Create or find the Pod of an attempt that is allocated; the caller made the job busy.

        Who allocated it may have led after us, and ended it, of which no watch has told us yet.
        """
        try:
            if not await self._read_afresh(job):
                return
            if self._creation(job.metadata.uid) is PodCreation.NOT_CREATED:
                await self._make_pod(job, attempt)
            else:
                await self._find_pod(job, attempt)
        finally:
            self._done(job.metadata.uid)

    def _creation(self, uid: str) -> PodCreation:
        return self._jobs.creations.of(uid, self._state.allocated(uid).values())

    async def _find_pod(self, job: SharedGPUJob, attempt: int) -> None:
        """Look for the Pod of an attempt, whose creation somebody may have requested."""
        uid = job.metadata.uid
        try:
            there = await self.pods.find(job, attempt)
        except KubernetesError as error:
            self._log.warning("pod not read", job=job.key, attempt=attempt, error=str(error))
            self._postponed.add(uid)
            return
        if not there and self._is_due(uid, attempt, self._state.allocated(uid)):
            self._jobs.creations.not_found(uid, self._state.allocated(uid).values())

    async def _read_afresh(self, job: SharedGPUJob) -> bool:
        """Read a job and its allocations; tell whether they are there."""
        meta = job.metadata
        try:
            self._state.apply_job(await self._kube.get(JOBS, meta.name, meta.namespace))
            for name in self._state.allocated(meta.uid):
                self._state.apply_server(await self._kube.get(SERVERS, name))
        except KubernetesError as error:
            self._log.warning("not read afresh", job=job.key, error=str(error))
            self._postponed.add(meta.uid)
            return False
        return True

    def _done(self, uid: str) -> None:
        if uid in self._postponed:
            # The API server could not be had: left alone for a moment.
            self._postponed.discard(uid)
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._done, uid)
            return
        self.busy.discard(uid)
        self._state.dirty.jobs(uid)

    async def _start(self, uid: str) -> None:
        try:
            job = self._state.jobs.get(uid)
            if job is not None:  # else it was deleted meanwhile
                await self._make_pod(job, self._jobs.attempt_of(uid))
        except Exception:  # noqa: BLE001 - a fault of ours with one job; the others go on
            self._log.exception("pod not made", uid=uid)
            self._postponed.add(uid)
        finally:
            self._done(uid)

    async def may_preempt(self, job: Job, gpus: Sequence[str]) -> bool:
        """Tell whether the API server would take a job's Pod if it got these GPUs.

        Nobody is ended for a job whose Pod a quota or an admission policy refuses: the job is
        told so, and waits as if its Pod had been refused when it was created.
        """
        found, since = self._state.jobs.get(job.id), self._now()
        servers = [self._state.servers[name] for name in gpus if name in self._state.servers]
        partition = self._state.partitions.get(self._jobs.partition_of(job.id))
        if found is None or partition is None or len(servers) < len(gpus):
            return False
        free = {s.metadata.name: allocatable(s.status.memory, partition) for s in servers}
        asked = {name: self._allocation(job, memory, since) for name, memory in free.items()}
        grant = _grant(found, self._jobs.attempt_of(job.id), asked, servers, partition)
        match await self.pods.would_be_refused(found, grant):
            case None:
                return True
            case Later() as later:
                self._log.warning("pod not tried", job=job.name, error=later.why)
            case Why() as why:
                self._jobs.refuse(found, why, self._now())
                self._events.warn(found, why.reason.value, why.message)
                self._state.dirty.jobs(job.id)
        return False

    async def _make_pod(self, job: SharedGPUJob, attempt: int) -> None:
        uid = job.metadata.uid
        allocated = self._state.allocated(uid)
        servers = [self._state.servers[name] for name in allocated]
        partition = self._state.partitions.get(job.spec.partition)
        if partition is None or not servers or not self._is_due(uid, attempt, allocated):
            return
        if self._creation(uid) is not PodCreation.NOT_CREATED:
            return  # who looks next finds it, or ends the attempt
        if not all(server.status.uuid and server.status.memory for server in servers):
            self._postponed.add(uid)  # somebody emptied its status: the agent will tell again
            return
        grant = _grant(job, attempt, allocated, servers, partition)
        self._jobs.creations.requesting(uid)
        # One that ended meanwhile, by whoever leads now, must not be started again.
        with fenced(lambda: self._is_due(uid, attempt, allocated)):
            created = await self.pods.create(job, grant)
        if not (created is Created.DONE or (isinstance(created, Later) and created.unsure)):
            self._jobs.creations.had_no_effect(uid)
        match created:
            case Created.DONE:
                self._jobs.created(job)
            case Later() as later:
                self._jobs.not_created(uid, later.why)
                self._postponed.add(uid)
            case Created.NAME_TAKEN:
                self._jobs.name_taken(uid, attempt)
            case Why() as why:
                # The next look gives the allocation back.
                self._jobs.refuse(job, why, self._now())
                self._events.warn(job, why.reason.value, why.message)

    def _is_due(self, uid: str, attempt: int, servers: Iterable[str]) -> bool:
        """Return whether an attempt is allocated on all its GPUs and not over, as far as known."""
        job, allocated = self._state.jobs.get(uid), self._state.allocated(uid)
        return (
            job is not None
            and all(a.number != attempt for a in job.status.attempts)
            and all(name in allocated and allocated[name].attempt == attempt for name in servers)
        )

    async def _write(
        self, changes: LedgerChanges, partition: GPUPartition | None
    ) -> dict[str, bool]:
        """Write the ledgers at the same time, in no order: each is one object."""
        written = await asyncio.gather(
            *(self._write_one(n, c, partition) for n, c in changes.by_server.items())
        )
        return dict(zip(changes.by_server, written, strict=True))

    async def _write_one(
        self, name: str, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        def sound(server: GPUServer, change: ServerChange) -> bool:
            return not change.allocate or self._sound(server, change, partition)

        done = given_back = False
        try:
            done = given_back = await write_ledger(self._kube, self._state, name, change, sound)
            if not done and change.release and name in self._state.servers:
                # What is given back does not depend on what could not be allocated.
                only = ServerChange(release=change.release)
                given_back = await write_ledger(self._kube, self._state, name, only, sound)
        except KubernetesError as error:
            self._log.warning("ledger not written", server=name, error=str(error))
            # Else they would be placed again at once, and again.
            self._postponed |= change.allocate.keys()
        if given_back:
            self._jobs.releases[name] -= change.release
        elif change.release:
            self._again(name)
        return done

    def _again(self, server: str) -> None:
        """Have a GPU's partition looked at in a while: perhaps nothing else ever happens to it."""
        found = self._state.servers.get(server)
        if found is not None:
            again, partition = self._state.dirty.partitions, found.spec.partition
            asyncio.get_running_loop().call_later(RETRY_AFTER, again, partition)

    def _sound(
        self, server: GPUServer, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        """Tell whether a GPU may take these allocations, with what is known by now."""
        if partition is None or server_state(server, partition, self._state) != "Ready":
            return False
        max_jobs = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
        problems = overcommitted(
            allocations_after(server, change),
            memory=allocatable(server.status.memory, partition),
            max_jobs=max_jobs,
            max_clients=max_clients(server) or max_jobs,
        )
        return not problems

    def _allocation(self, job: Job, whole: int, since: datetime) -> Allocation:
        _, _, name = job.name.partition("/")
        return Allocation(
            namespace=job.namespace,
            name=name,
            attempt=self._jobs.attempt_of(job.id),
            memory=whole if job.alone and not job.alone_by_faults else job.memory,
            thread_percent=job.thread_percent,
            slots=job.slots,
            clients=job.clients,
            alone=job.alone,
            since=since,
        )

    def _names_on(self, gpus: Sequence[str], result: CycleResult, job: Job) -> tuple[str, ...]:
        """Names of the jobs that a job meets on its GPUs; those of other namespaces have none."""
        there = {b.job for gpu in gpus for b in result.allocated[gpu].running}
        there |= {other.id for other, theirs in result.placed if set(theirs) & set(gpus)}
        found = [self._state.jobs.get(other) for other in there - {job.id}]
        return tuple(
            sorted(
                other.key if other.metadata.namespace == job.namespace else OTHERS_JOB
                for other in found
                if other is not None
            )
        )

    def _log_placed(self, job: Job, gpus: Sequence[str], result: CycleResult) -> None:
        answer = result.answer
        self._log.info(
            "placing",
            job=job.name,
            partition=self._jobs.partition_of(job.id),
            gpu=",".join(gpus),
            memory=job.memory,
            policy=answer.policy if answer else "aging",
            reason=(answer.failure if answer else "") or "it fits",
        )


def _grant(
    job: SharedGPUJob,
    attempt: int,
    allocated: dict[str, Allocation],
    servers: Sequence[GPUServer],
    partition: GPUPartition,
) -> JobAllocation:
    first = next(iter(allocated.values()))
    return JobAllocation(
        attempt=attempt,
        servers=tuple(allocated),
        uuids=tuple(s.status.uuid for s in servers),
        node=servers[0].status.node,
        memory=min(a.memory for a in allocated.values()),
        total_memory=min(s.status.memory for s in servers),
        mode=servers[0].spec.mode,
        thread_percent=first.thread_percent,
        oversubscription=partition.spec.sharing.oversubscription,
        device_injection=partition.spec.device_injection,
        tolerations=partition.spec.tolerations,
        yields=min(job.spec.priority, partition.spec.priority_cap(job.metadata.namespace)) < 0,
    )
