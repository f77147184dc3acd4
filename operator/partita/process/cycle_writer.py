"""Writes a cycle: creates the Pods that jobs need, writes the ledgers, then starts the Pods."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.growths import Growths
from partita.claims.ledger_writes import fits, write_ledger
from partita.claims.new_allocations import job_allocation, ledger_entries
from partita.claims.workloads import name_of
from partita.constants import OTHERS_JOB
from partita.jobs.attempt_pods import AttemptPods
from partita.jobs.creation import NameTaken, RetryLater
from partita.jobs.job_reconciler import JobReconciler
from partita.kube.client import CLAIMS, JOBS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Allocation, GPUPartition, GPUServer, SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.process.placement_events import PlacementEvents
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.gpu_state import server_state
from partita.scheduling.ledger import LedgerChanges, ServerChange
from partita.scheduling.reasons import WaitingReason
from partita.store.state import State
from partita.store.views import PodView
from partita.times import Times
from partita_policies.types import Job

__all__ = ["CycleWriter"]


_STARTS: Final = 32
"""Maximum number of attempts that are started at the same time."""


class CycleWriter:
    """Writes Pods, allocations and releases.

    Parameters
    ----------
    now, times
        The clock, and what the writes wait for.
    spawn
        Starts a task.
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
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = asyncio.create_task,
        times: Times = Times(),
    ) -> None:
        self._times = times
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
        self.attempts = AttemptPods(kube, state, events, now)
        self.claims = ClaimAllocations(kube, state, claims, events, now=now, times=times)
        # Few starts are half done if the operator ends meanwhile.
        self._starts = asyncio.Semaphore(_STARTS)
        self._postponed: set[str] = set()  # jobs for which a request failed
        self._log = structlog.get_logger().bind(part="cycle_writer")

    async def write(
        self, partition: GPUPartition | None, result: CycleResult, changes: LedgerChanges
    ) -> list[tuple[Job, tuple[str, ...]]]:
        """Write the result of a cycle.

        Parameters
        ----------
        changes
            The releases at the start of the cycle. The allocations are added to them, so that each
            GPU is written once.

        Returns
        -------
        list
            The jobs whose Pods are still being created, with their GPUs.
        """
        since = self._now()
        placed = {job.id: (job, gpus) for job, gpus in result.placed}
        started: set[str] = set()
        late: set[str] = set()
        self._queue.start(*placed)
        try:
            releasing = await self._still_released(changes) - placed.keys()
            pods = await self._pods_for(result, since, late)
            for uid, pod in pods.items():
                job, gpus = placed[uid]
                memory = {gpu: result.allocated[gpu].memory for gpu in gpus}
                entries = ledger_entries(job, memory, self._state.servers, pod, since)
                for gpu, entry in entries.items():
                    changes.allocate(uid, gpu, entry)
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
            for uid in pods:
                job, gpus = placed[uid]
                if all(written[gpu] for gpu in gpus):
                    started.add(uid)
                    self._placements.report(job, gpus, result)
        finally:
            # The next reconciliation of the job releases a partial allocation.
            for uid in placed.keys() - started - late:
                self._done(uid)
        tasks = [
            self._spawn(self.claims.carry_out(uid) if self._claims.has(uid) else self.start(uid))
            for uid in started
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=self._times.pods_started)
        return [placed[uid] for uid in late]

    async def _pods_for(
        self, result: CycleResult, since: datetime, late: set[str]
    ) -> dict[str, PodView]:
        """Create the Pods of the placed jobs; return the Pods of all that have one, by UID.

        Parameters
        ----------
        late
            Gets the UIDs of the jobs whose Pods are still being created.
        """
        pods, creations = dict[str, PodView](), dict[str, asyncio.Task[PodView | None]]()
        for job, gpus in result.placed:
            if self._claims.has(job.id):
                if (pod := self._claims.pod_of(job.id)) is not None:
                    pods[job.id] = pod
                self._claims.placed(job.id)
                continue
            self._jobs.placed(job.id, self._names_on(gpus, result, job))
            if (there := self._existing_pod(job, gpus, since)) is not None:
                pods[job.id] = there
                continue
            creations[job.id] = self._spawn(self._create_pod(job, gpus, since))
        if creations:
            await asyncio.wait(creations.values(), timeout=self._times.pods_created)
        for uid, task in creations.items():
            if not task.done():
                late.add(uid)
                task.add_done_callback(lambda _, uid=uid: self._done(uid))  # type: ignore[misc]
            elif (created := task.result()) is not None:
                pods[uid] = created
            else:  # its GPUs are free for others
                self._state.queues.partitions.add(self._jobs.partition_of(uid))
        return pods

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

    async def start(self, uid: str) -> None:
        """Start the Pod of an allocated attempt; the job's key must be in processing."""
        try:
            job, allocated = self._state.jobs.get(uid), self._state.allocated(uid)
            entry = next(iter(allocated.values()), None)
            pod = self._state.pods.get(entry.pod_uid) if entry is not None else None
            partition = self._state.partitions.get(job.spec.partition) if job else None
            servers = [self._state.servers[name] for name in allocated]
            if job is None or entry is None or pod is None:
                return
            reported = all(server.status.uuid and server.status.memory for server in servers)
            if partition is None or not reported:
                self._postponed.add(uid)  # a status that was reset is reported again
                return
            wanted = job_allocation(job, entry.job_attempt, allocated, servers, partition)
            async with self._starts:
                await self.attempts.start(job, pod, wanted, allocated, servers)
        except KubernetesError as error:
            self._log.warning("pod not started", uid=uid, error=str(error))
            self._postponed.add(uid)
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("pod not started", uid=uid)
            self._postponed.add(uid)
        finally:
            self._done(uid)

    async def find_pod(self, uid: str) -> None:
        """Read the Pod of an allocated attempt, which the informer lacks.

        The job's key must be in processing.
        """
        try:
            job, allocated = self._state.jobs.get(uid), self._state.allocated(uid)
            entry = next(iter(allocated.values()), None)
            if job and entry and not await self.attempts.find(job, entry):
                self._jobs.missing(uid, entry.pod_uid)
        except KubernetesError as error:
            self._log.warning("pod not read", uid=uid, error=str(error))
            self._postponed.add(uid)
        finally:
            self._done(uid)

    def _done(self, uid: str) -> None:
        self._queue.done(uid, self._times.retry_after if uid in self._postponed else 0.0)
        self._postponed.discard(uid)

    async def may_preempt(self, job: Job, gpus: Sequence[str]) -> bool:
        """Return whether the Pod of a job exists, for which others are to be ended on these GPUs.

        It is created if it does not. No job is preempted for a job whose Pod a quota or an
        admission policy rejects, or whose Pod an admission webhook delays.
        """
        if self._claims.has(job.id):
            return self._claims.pod_of(job.id) is not None
        if job.id in self._queue.processing:
            return False
        if self._existing_pod(job, gpus, self._now()) is not None:
            return True
        self._queue.start(job.id)
        creation = self._spawn(self._create_pod(job, gpus, self._now()))
        creation.add_done_callback(lambda _: self._done(job.id))
        await asyncio.wait([creation], timeout=self._times.pods_started)
        return creation.done() and creation.result() is not None

    async def _create_pod(self, job: Job, gpus: Sequence[str], since: datetime) -> PodView | None:
        """Create the Pod of a job's next attempt for these GPUs; None if that is not possible.

        The job's key must be in processing.
        """
        try:
            return await self._try_to_create_pod(job, gpus, since)
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("pod not created", job=job.name)
            self._postponed.add(job.id)
            return None

    def _existing_pod(self, job: Job, gpus: Sequence[str], since: datetime) -> PodView | None:
        """Return the Pod of a job's next attempt if nothing is left to create.

        That needs no task: on a slow machine each cycle would be over before the task is.
        """
        try:
            planned = self._planned(job, gpus, since)
            return self.attempts.existing(*planned[:2]) if planned is not None else None
        except Exception:  # noqa: BLE001 - `_create_pod` meets the same bug, and reports it
            return None

    def _planned(
        self, job: Job, gpus: Sequence[str], since: datetime
    ) -> tuple[SharedGPUJob, JobAllocation, Allocation] | None:
        """Return a job, the allocation of its next attempt, and its entry on one of the GPUs."""
        found = self._state.jobs.get(job.id)
        servers = [self._state.servers[name] for name in gpus if name in self._state.servers]
        partition = self._state.partitions.get(self._jobs.partition_of(job.id))
        if found is None or partition is None or len(servers) < len(gpus):
            return None
        attempt = self._jobs.attempt_of(job.id)
        free = {s.metadata.name: partition.spec.allocatable(s.status.memory) for s in servers}
        entries = ledger_entries(job, free, self._state.servers, None, since)
        wanted = job_allocation(found, attempt, entries, servers, partition)
        return found, wanted, entries[gpus[0]]

    async def _try_to_create_pod(
        self, job: Job, gpus: Sequence[str], since: datetime
    ) -> PodView | None:
        if (planned := self._planned(job, gpus, since)) is None:
            return None
        found, wanted, entry = planned
        match await self.attempts.create(found, wanted, entry):
            case PodView() as pod:
                self._jobs.created(found)
                return pod
            case RetryLater():
                self._postponed.add(job.id)
            case NameTaken():
                self._jobs.name_taken(job.id, wanted.attempt)
            case WaitingReason() as why:
                self._refuse(found, why)
        return None

    def _refuse(self, job: SharedGPUJob, why: WaitingReason) -> None:
        self._jobs.refuse(job, why, self._now())
        self._events.warn(job, why.reason.value, why.message)

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
            self._state.queues.partitions.add_after(found.spec.partition, self._times.retry_after)

    def _sound(
        self, server: GPUServer, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        """Return whether these allocations are possible in a GPU's current state."""
        if partition is None or server_state(server, partition, self._state) != "Ready":
            return False
        return fits(server, change, partition)

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
