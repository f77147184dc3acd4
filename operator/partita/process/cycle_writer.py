"""Writes a cycle: creates the Pods that jobs need, writes the ledgers, then starts the Pods."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from partita.claims.actions import PlacementDetails
from partita.claims.claim_allocations import ClaimAllocations
from partita.claims.growths import raised_entries, report_raised
from partita.claims.ledger_writes import fits, write_ledger
from partita.claims.new_allocations import ledger_entries
from partita.jobs.attempt_pods import AttemptPods, NotCreated
from partita.kube.client import CLAIMS, JOBS, PODS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Allocation, GPUPartition, GPUServer
from partita.process.reconcilers import Reconcilers
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.gpu_state import server_state
from partita.scheduling.ledger import ServerChange
from partita.scheduling.reasons import WaitingReason, gib
from partita.store.allocations import users_of
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.views import PodView
from partita.store.watched_kinds import feeds
from partita_policies.types import Job

__all__ = ["CycleWriter", "Written"]


class Written(NamedTuple):
    """What is under way once a cycle is in the ledgers."""

    late: list[tuple[Job, tuple[str, ...]]]
    """The jobs whose Pods are still being created, with their GPUs."""
    starting: Collection[asyncio.Task[None]]
    """The tasks that start the Pods."""


@dataclass
class CycleWriter:
    """Writes Pods, allocations and releases.

    Parameters
    ----------
    spawn
        Starts a task.
    """

    kube: Kube
    state: State
    reconcilers: Reconcilers
    events: Events
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = asyncio.create_task

    def __post_init__(self) -> None:
        self._of = self.reconcilers.of
        self._jobs = self.reconcilers.jobs
        self._demand = self.reconcilers.jobs.demand
        self._queue = self.state.queues.jobs
        self.attempts = AttemptPods(self.kube, self.state, self.events)
        self.claims = ClaimAllocations(
            self.kube,
            self.state,
            self.reconcilers.claims,
            self.events,
            plan=lambda uid, at: self._of(uid).plan_claim(uid, at),
        )
        self._postponed: set[str] = set()  # jobs for which a request failed
        self._log = structlog.get_logger().bind(part="cycle_writer")

    async def write(
        self,
        partition: GPUPartition | None,
        result: CycleResult,
        released: Mapping[str, AbstractSet[str]],
    ) -> Written:
        """Write the result of a cycle: one change of each GPU.

        Parameters
        ----------
        released
            UIDs of claims whose allocations were to be released at its start, by GPUServer.
        """
        since, name = self.state.now(), partition.metadata.name if partition is not None else ""
        placed = {job.id: (job, gpus) for job, gpus in result.placed}
        claims: dict[str, ClaimView] = {}  # of the placed jobs whose Pods exist
        started: dict[str, asyncio.Task[None]] = {}
        late: set[str] = set()
        self._queue.start(*placed)
        try:
            changes = await self._releases(released)
            users = {self.state.user_of(u) for one in changes.values() for u in one.release}
            pods = await self._pods_for(result, name, late)
            claims = {
                uid: claim
                for uid, pod in pods.items()
                for claim in self.state.claims_of_user(uid)
                if claim.may_be_placed and claim.attempt == pod.attempt
            }
            for uid, claim in claims.items():
                job, gpus = placed[uid]
                memory = {gpu: result.allocated[gpu].memory for gpu in gpus}
                entries = ledger_entries(
                    job, memory, self.state.servers, claim=claim, pod=pods[uid], since=since
                )
                for gpu, entry in entries.items():
                    changes[gpu].allocate[claim.uid] = entry
            grown = raised_entries(result.grown, self.state, since)
            for growth, _, larger in grown:
                changes[growth.gpu_server].grow[growth.job.id] = larger
            releasing = users - self._queue.processing
            self._queue.start(*releasing)
            try:
                writes = (self._write_ledger(n, c, partition) for n, c in changes.items())
                written = dict(zip(changes, await asyncio.gather(*writes), strict=True))
            finally:
                for uid in releasing:
                    self._done(uid)
            report_raised(grown, self.state, self.events)
            for uid in claims:
                job, gpus = placed[uid]
                if all(written[gpu] for gpu in gpus):
                    # Before it is reported: from here on the task ends the processing.
                    started[uid] = self.spawn(self.claims.carry_out(uid))
                    self._report(job, gpus, pods[uid], result, name)
        finally:
            # The next reconciliation of the job or the claim releases a partial allocation.
            for uid in placed.keys() - started.keys() - late:
                self._done(uid)
        return Written([placed[uid] for uid in late], started.values())

    def _report(
        self, job: Job, gpus: Sequence[str], pod: PodView, result: CycleResult, partition: str
    ) -> None:
        """Tell where a job or a claim was placed: in the log, and by Events."""
        answer, policy = result.answer, result.chosen_by(job.id)
        self._log.info(
            "placed",
            job=job.name,
            partition=partition,
            gpu=",".join(gpus),
            memory=job.memory,
            policy=policy,
            reason=(answer.failure if answer else "") or "it fits",
        )
        amount = _amount(job, self.state.allocated(job.id).values())
        where = f"{', '.join(gpus)} (node {result.allocated[gpus[0]].node})"
        placed = PlacementDetails(job, pod, amount, where, policy)
        for event in self._of(job.id).placement_events(job.id, placed):
            self.events.emit(event)

    async def _pods_for(
        self, result: CycleResult, partition: str, late: set[str]
    ) -> dict[str, PodView]:
        """Create the Pods of the placed jobs; return the Pods of all that have one, by UID.

        Parameters
        ----------
        late
            Gets the UIDs of the jobs whose Pods are still being created.
        """
        pods, creations = dict[str, PodView](), dict[str, asyncio.Task[PodView | None]]()
        for job, gpus in result.placed:
            self._of(job.id).placed(job.id)
            if (there := self._existing_pod(job, gpus)) is not None:
                pods[job.id] = there
            else:
                creations[job.id] = self.spawn(self._create_pod(job, gpus))
        if creations:
            await asyncio.wait(creations.values(), timeout=self.kube.times.pods_created)
        for uid, task in creations.items():
            if not task.done():
                late.add(uid)
                task.add_done_callback(lambda _, uid=uid: self._done(uid))  # type: ignore[misc]
            elif (created := task.result()) is not None:
                pods[uid] = created
            else:  # its GPUs are free for others
                self.state.queues.partitions.add(partition)
        return pods

    async def _releases(
        self, released: Mapping[str, AbstractSet[str]]
    ) -> defaultdict[str, ServerChange]:
        """Return the releases that still apply, by GPUServer.

        Jobs may have been reconciled, and their Pods created, while the policy ran.
        """
        unknown = {uid for uids in released.values() for uid in uids if not self._is_known(uid)}
        there = set(await asyncio.gather(*map(self._read_unknown, unknown)))
        changes = defaultdict[str, ServerChange](ServerChange)
        for name, uids in released.items():
            changes[name].release |= uids & self._demand.releases[name] - there
        return changes

    def _is_known(self, claim: str) -> bool:
        """Return whether the informer has what an allocation is for: its job, or its claim."""
        return self.state.user(self.state.user_of(claim)) is not None

    async def _read_unknown(self, uid: str) -> str:
        """Read the claim, or its job, that the informer lacks; return its UID unless it is gone.

        The previous leader may have allocated for it.
        """
        for server, entry in self.state.allocated(uid).items():
            kind, name = (JOBS, entry.job) if entry.job else (CLAIMS, entry.name)
            try:
                body = await self.kube.get(kind, name, entry.namespace)
            except NotFoundError:
                return ""
            except KubernetesError as error:
                self._log.warning("not read", name=name, error=str(error))
                self._retry_partition(server)
                return uid
            if body["metadata"]["uid"] == self.state.user_of(uid):
                feeds(self.state)[kind].apply(body)
        return uid if self._is_known(uid) else ""

    async def read_missing(self, uid: str) -> None:
        """Read the Pod and the claim of an allocated attempt, one of which the informer lacks.

        The job's key must be in processing.
        """
        try:
            entry = next(iter(self.state.allocated(uid).values()), None)
            if uid not in self.state.jobs or entry is None:
                return
            # In this order: a claim has its allocation before its Pod is on a node.
            for kind, name in ((PODS, entry.pod), (CLAIMS, entry.name)):
                with suppress(NotFoundError):
                    body = await self.kube.get(kind, name, entry.namespace)
                    feeds(self.state)[kind].apply(body)
            there = {pod.uid: pod.node for pod in self.state.pods_of(uid)}
            claim = self.state.claims.get(holder := self.state.holder(uid))
            if claim is not None and (claim.allocation or not there.get(entry.pod_uid)):
                there[holder] = ""
            self._jobs.records[uid].missing = {entry.pod_uid, holder} - there.keys()
        except KubernetesError as error:
            self._log.warning("attempt not read", uid=uid, error=str(error))
            self._postponed.add(uid)
        finally:
            self._done(uid)

    def _done(self, uid: str) -> None:
        self._queue.done(uid, self.kube.times.retry_after if uid in self._postponed else 0.0)
        self._postponed.discard(uid)

    async def may_preempt(self, job: Job, gpus: Sequence[str]) -> bool:
        """Return whether the Pod of a job exists, for which others are to be ended on these GPUs.

        It is created if it does not. No job is preempted for a job whose Pod a quota or an
        admission policy rejects, or whose Pod an admission webhook delays.
        """
        if job.id in self._queue.processing:
            return False
        if self._existing_pod(job, gpus) is not None:
            return True
        self._queue.start(job.id)
        creation = self.spawn(self._create_pod(job, gpus))
        creation.add_done_callback(lambda _: self._done(job.id))
        await asyncio.wait([creation], timeout=self.kube.times.pods_started)
        return creation.done() and creation.result() is not None

    async def _create_pod(self, job: Job, gpus: Sequence[str]) -> PodView | None:
        """Create what is missing for a job's next attempt on these GPUs; return its Pod.

        None if it cannot be created before the job is reconciled again.
        """
        try:
            if (planned := self._jobs.allocation_for(job, gpus)) is None:
                return None
            found, wanted = planned
            match await self.attempts.create(found, wanted, job.thread_percent):
                case PodView() as made:
                    self._jobs.rejections.created(found)
                    # Another controller has not admitted it: it gets a GPU in a later cycle.
                    return None if made.other_gates else made
                case NotCreated.RETRY_LATER:
                    self._postponed.add(job.id)
                case NotCreated.NAME_TAKEN:
                    self._jobs.records[job.id].first_attempt = wanted.attempt + 1
                case WaitingReason() as why:
                    self._jobs.rejections.note(found, why, self.state.now())
        except Exception:  # noqa: BLE001 - a bug that affects one job must not stop the others
            self._log.exception("pod not created", job=job.name)
            self._postponed.add(job.id)
        return None

    def _existing_pod(self, job: Job, gpus: Sequence[str]) -> PodView | None:
        """Return the Pod that gets the GPUs of a placed job or claim if nothing is to be created.

        That needs no task: on a slow machine each cycle would be over before the task is.
        """
        try:
            return self._of(job.id).pod_for(job, gpus)
        except Exception:  # noqa: BLE001 - `_create_pod` meets the same bug, and reports it
            return None

    async def _write_ledger(
        self, name: str, change: ServerChange, partition: GPUPartition | None
    ) -> bool:
        def sound(server: GPUServer, change: ServerChange) -> bool:
            if not (change.allocate or change.grow):
                return True
            if partition is None or server_state(server, partition, self.state) != "Ready":
                return False
            return fits(server, change, partition)

        done = released = False
        try:
            done = released = await write_ledger(self.kube, self.state, name, change, sound)
            if not done and change.release and name in self.state.servers:
                # Releases are written even if the allocations cannot be made.
                only = ServerChange(release=change.release)
                released = await write_ledger(self.kube, self.state, name, only, sound)
        except KubernetesError as error:
            self._log.warning("ledger not written", server=name, error=str(error))
            # Without this the jobs would be placed again at once.
            self._postponed |= users_of(change.allocate)
        if released:
            self._demand.releases[name] -= change.release
        if change.release if not released else change.grow and not done:
            self._retry_partition(name)
        return done

    def _retry_partition(self, server: str) -> None:
        """Schedule a GPU's partition again after a delay, even if nothing else changes there."""
        found = self.state.servers.get(server)
        if found is not None:
            self.state.queues.partitions.add_after(
                found.spec.partition, self.kube.times.retry_after
            )


def _amount(job: Job, allocated: Collection[Allocation]) -> str:
    """Return the memory that a job or a claim has got on each GPU."""
    memory = gib(max((entry.memory for entry in allocated), default=job.memory))
    if not job.alone or job.alone_by_faults:
        return memory
    return f"a whole GPU with {memory}" if job.gpus == 1 else f"whole GPUs with {memory} each"
