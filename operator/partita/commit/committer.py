"""Commits a cycle: writes the ledgers of all GPUs concurrently, then creates the Pods."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from partita.commit.claim_allocations import ClaimAllocations
from partita.commit.creation import Created, Later
from partita.commit.growths import Growths
from partita.commit.job_claims import JobClaims
from partita.commit.job_pods import JobPods
from partita.commit.ledger_writes import fits, write_ledger
from partita.commit.new_allocations import job_allocation, ledger_entries
from partita.commit.placement_events import PlacementEvents
from partita.constants import OTHERS_JOB
from partita.decide.cycle_result import CycleResult
from partita.decide.ledger import LedgerChanges, ServerChange
from partita.informer.state import State
from partita.kube.client import CLAIMS, JOBS, SERVERS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.kube.fence import fenced
from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.reconcile.claims.claim_reconciler import ClaimReconciler
from partita.reconcile.claims.workloads import name_of
from partita.reconcile.gpu_state import server_state
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.pod_creation import PodCreation
from partita.reconcile.reasons import Why
from partita.times import Times
from partita_policies.types import Job

__all__ = ["Committer"]

PODS_WITHIN = 1.0
"""Maximum seconds for which a cycle waits until its Pods are created. This slows cycles down if the
API server is slow. An admission webhook that does not answer delays only the jobs it applies to."""


class Committer:
    """Writes allocations, releases and Pods.

    Parameters
    ----------
    now, times
        The clock, and how soon a failed write is repeated.
    spawn
        Starts a task.
    starts
        How many attempts get claims and Pod at a time: few are lost if the operator ends meanwhile.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        jobs: JobReconciler,
        claims: ClaimReconciler,
        events: Events,
        *,
        now: Callable[[], datetime],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.create_task,
        times: Times = Times(),
        starts: int = 32,
    ) -> None:
        self._retry_after = times.retry_after
        self._kube = kube
        self._state = state
        self._jobs = jobs
        self._claims = claims
        self._events = events
        self._now = now
        self._spawn = spawn
        self._queue = state.queues.jobs
        self._growths = Growths(state, events)
        self._placements = PlacementEvents(state, jobs, claims, events)
        self.pods = JobPods.of(kube, state, events)
        self.job_claims = JobClaims(kube, state, now)
        self.claims = ClaimAllocations(kube, state, claims, events, now=now, times=times)
        self._starts = asyncio.Semaphore(starts)
        self._postponed: set[str] = set()  # jobs for which a request failed
        self._log = structlog.get_logger().bind(part="commit")

    async def commit(
        self, partition: GPUPartition | None, result: CycleResult, changes: LedgerChanges
    ) -> None:
        """Write the result of a cycle.

        Parameters
        ----------
        changes
            The releases at the start of the cycle. The allocations are added to them, so that each
            GPU is written once.
        """
        since = self._now()
        placed = {job.id for job, _ in result.placed}
        started: set[str] = set()
        self._queue.start(*placed)
        try:
            releasing = await self._still_released(changes) - placed
            for job, gpus in result.placed:
                self._note_placed(job, gpus, result, since)
                memory = {gpu: result.allocated[gpu].memory for gpu in gpus}
                for gpu, entry in self._entries(job, memory, since).items():
                    changes.allocate(job.id, gpu, entry)
            grown = self._growths.add(result, changes, since)
            self._queue.start(*releasing)
            try:
                names = changes.by_server
                writes = (self._write_ledger(n, c, partition) for n, c in names.items())
                written = dict(zip(names, await asyncio.gather(*writes), strict=True))
            finally:
                for uid in releasing:
                    self._done(uid)
            self._growths.report(grown)
            for job, gpus in result.placed:
                if all(written[gpu] for gpu in gpus):
                    started.add(job.id)
                    self._placements.report(job, gpus, result)
        finally:
            # The next reconciliation of the job releases a partial allocation.
            for uid in placed - started:
                self._done(uid)
        tasks = [
            self._spawn(
                self.claims.carry_out(uid)
                if self._claims.has(uid)
                else self.start(uid, self._jobs.attempt_of(uid), read_again=False)
            )
            for uid in started
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=PODS_WITHIN)

    def _note_placed(
        self, job: Job, gpus: Sequence[str], result: CycleResult, since: datetime
    ) -> None:
        if self._claims.has(job.id):
            self._claims.placed(job.id)
            return
        self._jobs.placed(job.id, self._names_on(gpus, result, job))
        self._jobs.creations.allocating(job.id, self._jobs.attempt_of(job.id), since)

    async def _still_released(self, changes: LedgerChanges) -> set[str]:
        """Drop releases that no longer apply; return the UIDs of those with remaining releases.

        Jobs may have been reconciled, and their Pods created, while the policy ran.
        """
        every = changes.by_server
        released = {u for c in every.values() for u in c.release}
        jobs, claims = self._state.jobs, self._state.claims
        # `released - jobs.keys()` would visit every job of the cluster.
        unknown = {uid for uid in released if uid not in jobs and uid not in claims}
        there = set(await asyncio.gather(*(self._read_unknown(uid) for uid in unknown)))
        for name, change in every.items():
            change.release &= self._jobs.releases[name] - there
        return {uid for change in every.values() for uid in change.release}

    async def _read_unknown(self, uid: str) -> str:
        """Read a job or claim that the informer lacks; return its UID unless it is deleted.

        The previous leader may have allocated for it.
        """
        for server, allocated in self._state.allocated(uid).items():
            kind = CLAIMS if allocated.is_claim else JOBS
            apply = self._state.apply_claim if allocated.is_claim else self._state.apply_job
            try:
                body = await self._kube.get(kind, allocated.name, allocated.namespace)
            except NotFoundError:
                return ""
            except KubernetesError as error:
                self._log.warning("not read", name=allocated.name, error=str(error))
                self._retry_partition(server)
                return uid
            if body["metadata"]["uid"] == uid:
                apply(body)
        return uid if uid in self._state.jobs or uid in self._state.claims else ""

    async def start(self, uid: str, attempt: int, *, read_again: bool = True) -> None:
        """Create or find the Pod of an allocated attempt; the job's key must be in processing.

        Parameters
        ----------
        read_again
            Read the job and its GPUs first, because another leader may have ended the attempt
            since the allocation.
        """
        try:
            job = self._state.jobs.get(uid)
            if job is None or (read_again and not await self._read_again(job)):
                return
            if self._creation(uid) is PodCreation.NOT_CREATED:
                async with self._starts:
                    await self._create_pod(job, attempt)
            elif not await self.pods.find(job, attempt) and self._is_newest(uid, attempt):
                self._jobs.creations.not_found(uid, self._state.allocated(uid).values())
        except KubernetesError as error:
            self._log.warning("pod not read", uid=uid, error=str(error))
            self._postponed.add(uid)
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("pod not created", uid=uid)
            self._postponed.add(uid)
        finally:
            self._done(uid)

    async def restore_claims(self, uid: str, attempt: int) -> None:
        """Create and allocate the claims of an attempt whose Pod waits for them."""
        try:
            async with self._starts:
                job = self._state.jobs.get(uid)
                if job is None or (due := self._allocation(job, attempt)) is None:
                    self._postponed.add(uid)
                    return
                made = await self.job_claims.create(job, *due)
            self._log.info("restored claims", job=job.key, attempt=attempt, result=str(made))
            if made is not Created.DONE:
                self._postponed.add(uid)
        finally:
            self._done(uid)

    def _creation(self, uid: str) -> PodCreation:
        return self._jobs.creations.of(uid, self._state.allocated(uid).values())

    async def _read_again(self, job: SharedGPUJob) -> bool:
        """Read a job and its GPUs; return whether all could be read."""
        meta = job.metadata
        try:
            self._state.apply_job(await self._kube.get(JOBS, meta.name, meta.namespace))
            for name in self._state.allocated(meta.uid):
                self._state.apply_server(await self._kube.get(SERVERS, name))
        except KubernetesError as error:
            self._log.warning("job not read again", job=job.key, error=str(error))
            self._postponed.add(meta.uid)
            return False
        return True

    def _done(self, uid: str) -> None:
        self._queue.done(uid, self._retry_after if uid in self._postponed else 0.0)
        self._postponed.discard(uid)

    async def may_preempt(self, job: Job, gpus: Sequence[str]) -> bool:
        """Return whether the API server would accept a job's Pod on these GPUs.

        No job is preempted for a job whose Pod a quota or an admission policy rejects. That job
        waits as if its Pod had been rejected on creation.
        """
        if self._claims.has(job.id):
            return self._claims.pod_of(job.id) is not None  # its Pod exists already
        found, since = self._state.jobs.get(job.id), self._now()
        servers = [self._state.servers[name] for name in gpus if name in self._state.servers]
        partition = self._state.partitions.get(self._jobs.partition_of(job.id))
        if found is None or partition is None or len(servers) < len(gpus):
            return False
        free = {s.metadata.name: partition.spec.allocatable(s.status.memory) for s in servers}
        asked = self._entries(job, free, since)
        attempt = self._jobs.attempt_of(job.id)
        wanted = job_allocation(found, attempt, asked, servers, partition)
        match await self.job_claims.would_be_refused(
            found, attempt, asked, servers
        ) or await self.pods.would_be_refused(found, wanted):
            case None:
                return True
            case Later() as later:
                self._log.warning("pod not tried", job=job.name, error=later.why)
            case Why() as why:
                self._refuse(found, why)
                self._queue.add(job.id)
        return False

    async def _create_pod(self, job: SharedGPUJob, attempt: int) -> None:
        uid = job.metadata.uid
        if self._creation(uid) is not PodCreation.NOT_CREATED:
            return  # the next reconciliation finds the Pod, or ends the attempt
        if not self._is_new(uid, attempt) or (due := self._allocation(job, attempt)) is None:
            return
        wanted, allocated, servers = due
        created = await self.job_claims.create(job, wanted, allocated, servers)
        if created is Created.DONE:
            self._jobs.creations.requesting(uid)
            # An attempt that another leader has ended must not be started again.
            with fenced(
                lambda: self._is_new(uid, attempt) and self._is_allocated(uid, attempt, allocated)
            ):
                created = await self.pods.create(job, wanted)
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
                self._refuse(job, why)  # the next reconciliation releases the allocation

    def _allocation(
        self, job: SharedGPUJob, attempt: int
    ) -> tuple[JobAllocation, dict[str, Allocation], list[GPUServer]] | None:
        """Return an attempt's allocation, its ledger entries and GPUs; None if it cannot start."""
        uid = job.metadata.uid
        allocated = self._state.allocated(uid)
        servers = [self._state.servers[name] for name in allocated]
        partition = self._state.partitions.get(job.spec.partition)
        if partition is None or not servers or not self._is_allocated(uid, attempt, allocated):
            return None
        if not all(server.status.uuid and server.status.memory for server in servers):
            self._postponed.add(uid)  # the status was reset, and the agent will report again
            return None
        return job_allocation(job, attempt, allocated, servers, partition), allocated, servers

    def _refuse(self, job: SharedGPUJob, why: Why) -> None:
        self._jobs.refuse(job, why, self._now())
        self._events.warn(job, why.reason.value, why.message)

    def _is_allocated(self, uid: str, attempt: int, servers: Iterable[str]) -> bool:
        """Return whether an attempt is allocated on all these GPUs."""
        allocated = self._state.allocated(uid)
        return all(name in allocated and allocated[name].attempt == attempt for name in servers)

    def _is_newest(self, uid: str, attempt: int) -> bool:
        """Return whether an attempt is new, and the last one that is allocated.

        An earlier attempt may still be allocated on another GPU, if the process that was about to
        release it ended between two ledgers.
        """
        allocated = self._state.allocated(uid).values()
        return (
            self._is_new(uid, attempt)
            and max((a.job_attempt for a in allocated), default=0) == attempt
        )

    def _is_new(self, uid: str, attempt: int) -> bool:
        """Return whether the job's status does not have the attempt, which then had no Pod yet."""
        job = self._state.jobs.get(uid)
        return job is not None and all(a.number != attempt for a in job.status.attempts)

    async def _write_ledger(
        self, name: str, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        def sound(server: GPUServer, change: ServerChange) -> bool:
            more = change.allocate or change.grow
            return not more or self._sound(server, change, partition)

        done = released = False
        try:
            done = released = await write_ledger(self._kube, self._state, name, change, sound)
            if not done and change.release and name in self._state.servers:
                # Releases are written even if the allocations cannot be made.
                only = ServerChange(release=change.release)
                released = await write_ledger(self._kube, self._state, name, only, sound)
        except KubernetesError as error:
            self._log.warning("ledger not written", server=name, error=str(error))
            # Without this the jobs would be placed again at once.
            self._postponed |= change.allocate.keys()
        if released:
            self._jobs.releases[name] -= change.release
        if change.release if not released else change.grow and not done:
            self._retry_partition(name)
        return done

    def _retry_partition(self, server: str) -> None:
        """Schedule a GPU's partition again after a delay, even if nothing else changes there."""
        found = self._state.servers.get(server)
        if found is not None:
            self._state.queues.partitions.add_after(found.spec.partition, self._retry_after)

    def _sound(
        self, server: GPUServer, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        """Return whether these allocations are possible in a GPU's current state."""
        if partition is None or server_state(server, partition, self._state) != "Ready":
            return False
        return fits(server, change, partition)

    def _entries(
        self, job: Job, memory: Mapping[str, int], since: datetime
    ) -> dict[str, Allocation]:
        """Return the entries of a job or a claim, by GPUServer, from the allocatable bytes."""
        pod = self._claims.pod_of(job.id) if self._claims.has(job.id) else None
        user = pod or self._jobs.attempt_of(job.id)
        return ledger_entries(job, memory, self._state.servers, user, since)

    def _names_on(self, gpus: Sequence[str], result: CycleResult, job: Job) -> tuple[str, ...]:
        """Return what runs beside a job; what is of other namespaces appears as `OTHERS_JOB`."""
        there = {b.job: b.namespace for gpu in gpus for b in result.allocated[gpu].running}
        there |= {o.id: o.namespace for o, theirs in result.placed if set(theirs) & set(gpus)}
        there.pop(job.id, None)
        return tuple(
            sorted(
                name_of(uid, self._state) if namespace == job.namespace else OTHERS_JOB
                for uid, namespace in there.items()
            )
        )
