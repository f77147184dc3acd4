"""The jobs on the GPU: whose process is whose, what they use, and what is kept of it."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from pydantic import ValidationError

from partita.agent.allocations import AllocatedPod, AttemptAllocation, run_of
from partita.agent.limits import Contexts, LimitViolation, offences
from partita.agent.processes import PodsOfProcesses
from partita.agent.reporter import JobUse
from partita.agent.sampling import GPUReading, Trace, Use, attribute
from partita.agent.surplus_clients import ClientCounter, Surplus
from partita.agent.terminate import Terminate
from partita.agent.unknown_processes import Unknown, UnknownProcessTracker
from partita.kube.client import PODS, SERVERS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import GPUServer, SharedGPUJob, SharingMode
from partita.models.base import ObjectMeta, mebibytes
from partita.models.errors import describe
from partita.models.partition import UnknownProcessesPolicy

__all__ = ["FinishedJob", "RunningJobs"]

Key = tuple[str, int]

_END_AGAIN: Final = 3.0
"""Seconds before a process that is still above its allocation is ended again: one that was ended
needs a moment to let go, and one that could not be is not told of again and again."""
_READ_WITHIN: Final = 1.0
"""Seconds for the ledger to be read where the operator waits to hear of what happened."""
_ASK_AGAIN: Final = 1.0
"""Seconds before the Pod of a process that nobody knows is looked for again."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """An attempt that has left the ledger."""

    allocation: AttemptAllocation
    run: AllocatedPod
    trace: Trace


@dataclass(slots=True)
class RunningJobs:
    """The jobs of one GPU.

    Parameters
    ----------
    kube
        The API server.
    server
        The GPUServer's name.
    events
        Where a job's user is told that a process was ended.
    mode
        How the GPU is shared.
    terminate
        Ends a process's work on the GPU; returns why it could not, empty when it did.
    pods
        Finds the Pods of processes.
    """

    kube: Kube
    server: str
    events: Events
    mode: SharingMode
    terminate: Terminate
    pods: PodsOfProcesses
    finished: asyncio.Queue[FinishedJob] = field(default_factory=asyncio.Queue)
    """Attempts whose profile may be kept."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the ledger should be read again soon."""
    body: dict[str, Any] = field(default_factory=dict)
    """The GPUServer as it was read last."""
    last: GPUReading | None = None
    """The newest sample."""
    allocations: dict[Key, AttemptAllocation] = field(default_factory=dict)
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the ledger was read."""
    _runs: dict[Key, AllocatedPod] = field(default_factory=dict)
    _traces: dict[Key, Trace] = field(default_factory=dict)
    own: Callable[[], set[int]] = set
    """PIDs of the MPS servers of the GPU."""
    unknown: UnknownProcessTracker = field(default_factory=UnknownProcessTracker)
    """Processes that no allocation covers."""
    terminate_unknown: bool = False
    """Whether those of them that are in Pods are to be ended."""
    _read_at: float | None = None
    """When the ledger and all its Pods were last read, of `time.time`."""
    _unread: set[Key] = field(default_factory=set)
    """Allocations whose Pods could not be read."""
    _clients: ClientCounter = field(default_factory=ClientCounter)
    _excess: dict[Key, int] = field(default_factory=dict)
    """Most clients of each allocation of which one was ended for being too many."""
    _told_unknown: int = 0
    _contexts: Contexts = field(default_factory=Contexts)
    _ending: set[int] = field(default_factory=set)
    _asked: dict[str, float] = field(default_factory=dict)
    _unreadable: str = ""
    """What is wrong with the GPUServer; empty when it can be read."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    async def poll(self) -> None:
        """Read the ledger, and the Pods of what is new in it.

        Of a GPUServer that cannot be read the last ledger that could be stays in force.

        Raises
        ------
        KubernetesError
            If the API server does not give the GPUServer.
        """
        began = time.time()
        body = await self.kube.get(SERVERS, self.server)
        try:
            server = GPUServer.parse(body)
        except ValidationError as error:
            problem = describe(error)
            if problem != self._unreadable:
                self._log.warning("GPUServer unreadable", server=self.server, problem=problem)
            self._unreadable = problem
            return
        self.body, self._unreadable = body, ""
        self.terminate_unknown = server.spec.unknown_processes is UnknownProcessesPolicy.TERMINATE
        found = [AttemptAllocation.of(job, a) for job, a in server.status.allocations.items()]
        old, self.allocations = (
            self.allocations,
            {allocation.key: allocation for allocation in found},
        )
        self.known.set()
        for key in old.keys() - self.allocations.keys():
            run, trace = self._runs.pop(key, None), self._traces.pop(key, None)
            if run is not None and trace is not None:
                self.finished.put_nowait(FinishedJob(old[key], run, trace))
            self._excess.pop(key, None)
        self._unread.clear()
        for key, allocation in self.allocations.items():
            if key not in self._runs:
                await self._find_run(key, allocation)
        if not self._unread:
            self._read_at = began

    async def _find_run(self, key: Key, allocation: AttemptAllocation) -> None:
        try:
            body = await self.kube.get(PODS, allocation.pod, allocation.namespace)
        except NotFoundError:
            return  # it is allocated before it is created
        except KubernetesError as error:
            self._log.info("Pod not read", pod=allocation.pod, error=str(error))
            self._unread.add(key)
            return
        run = run_of(body, allocation)
        if run is not None:
            self._runs[key] = run

    def released(self) -> bool:
        """Tell whether nothing is allocated any more, as far as is known."""
        return self.known.is_set() and not self.allocations

    async def alone(self) -> bool:
        """Read the ledger, and return whether exactly one job is allocated; False if unknown."""
        try:
            async with asyncio.timeout(_READ_WITHIN):
                await self.poll()
        except (KubernetesError, TimeoutError):
            return False
        return not self._unreadable and len(self.allocations) == 1

    def strangers(self, pids: set[int]) -> set[int]:
        """Find processes that belong to no job of this GPU."""
        known = {run.uid for run in self._runs.values()}
        return {pid for pid, pod in self.pods.of(pids).items() if pod not in known}

    def take(self, readings: list[GPUReading]) -> None:
        """Take samples, oldest first; end what is above its allocation."""
        allocations: Mapping[int, AttemptAllocation] = {}
        surplus: list[Surplus] = []
        for reading in readings:
            allocations = self._owners(reading)
            jobs = {pid: allocation.job for pid, allocation in allocations.items()}
            keys = {allocation.job: allocation.key for allocation in allocations.values()}
            for job, use in attribute(reading, jobs).items():
                self._traces.setdefault(keys[job], Trace()).add(reading.at, use)
            for key in self._traces.keys() - keys.values():
                # It is allocated, but has no process on the GPU at the moment.
                self._traces[key].add(reading.at, Use())
            self._contexts.see(reading.at, {pid: reading.memory[pid] for pid in allocations})
            self._look_for_unknown(reading, set(allocations))
            if self.mode is SharingMode.MPS:
                surplus = self._clients.see(reading.at, allocations)
            self.last = reading
        if self.last is not None and self.mode is not SharingMode.EXCLUSIVE:
            for offence in offences(self.last.memory, allocations, self._contexts.size):
                self._end(offence.pid, self._end_offence(offence))
        for client in surplus:
            self._end(client.pid, self._end_surplus(client))
        if self.terminate_unknown:
            for unknown in self.unknown.found:
                if unknown.pod is not None:
                    self._end(unknown.pid, self._end_unknown(unknown))
        self._tell_unknown()

    def _look_for_unknown(self, reading: GPUReading, allocated: set[int]) -> None:
        pods = self.pods.of(set(reading.memory))
        server_pod = self.pods.identity(os.getpid()).pod
        ours = {p for p, pod in pods.items() if pod is not None and pod == server_pod}
        known = allocated | ours | self.own()
        self.unknown.see(reading.at, reading.memory, pods, known, self._read_at)

    def _tell_unknown(self) -> None:
        count = len(self.unknown.found)
        if count > self._told_unknown and self.body:
            used = mebibytes(sum(unknown.memory for unknown in self.unknown.found))
            pods = sum(unknown.pod is not None for unknown in self.unknown.found)
            message = (
                f"{count} processes ({pods} in Pods) use {used} of the GPU without an allocation"
            )
            self._log.warning("unknown processes", found=self.unknown.found)
            self.events.warn(GPUServer.parse(self.body), "UnknownProcesses", message)
        self._told_unknown = count

    def _owners(self, reading: GPUReading) -> dict[int, AttemptAllocation]:
        """Find the allocation of each process that has one."""
        by_pod = {
            self._runs[key].uid: allocation
            for key, allocation in self.allocations.items()
            if key in self._runs
        }
        owners: dict[int, AttemptAllocation] = {}
        for pid, pod in self.pods.of(set(reading.memory)).items():
            if pod is None:
                continue
            if pod in by_pod:
                owners[pid] = by_pod[pod]
            elif reading.at - self._asked.get(pod, 0.0) >= _ASK_AGAIN:
                self._asked[pod] = reading.at
                self.wake.set()
        return owners

    def _end(self, pid: int, work: Coroutine[Any, Any, None]) -> None:
        """Have a process ended, once at a time; one that lives on is found again."""
        if pid in self._ending:
            work.close()
            return
        self._ending.add(pid)
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            self._ending.discard(pid)

        task.add_done_callback(done)

    async def _terminate(self, pid: int) -> str:
        return await self.terminate(pid, lambda: self.pods.is_same(pid))

    async def _end_unknown(self, unknown: Unknown) -> None:
        why_not = await self._terminate(unknown.pid)
        used = mebibytes(unknown.memory)
        said = f"a process in a Pod used {used} of the GPU without an allocation"
        self._log.warning("unknown process", process=unknown, why_not=why_not)
        end = f"it could not be ended: {why_not}" if why_not else "it was ended"
        self.events.warn(GPUServer.parse(self.body), "UnknownProcessTerminated", f"{said}; {end}")
        await asyncio.sleep(_END_AGAIN)

    async def _end_surplus(self, client: Surplus) -> None:
        allocation = client.allocation
        most = max(client.count, self._excess.get(allocation.key, 0))
        why_not = await self._terminate(client.pid)
        facts = (
            f"attempt {allocation.attempt} had {client.count} MPS clients with "
            f"{allocation.clients} allocated"
        )
        self._log.warning("too many clients", job=allocation.name, pid=client.pid, why_not=why_not)
        if why_not:
            message = f"{facts}; process {client.pid} could not be ended: {why_not}"
        else:
            self._excess[allocation.key] = most
            message = f"{facts}: process {client.pid}, the newest, was ended; raise spec.processes"
        self.events.warn(_job_of(allocation), "AboveProcesses", message)
        await asyncio.sleep(_END_AGAIN)

    async def _end_offence(self, offence: LimitViolation) -> None:
        """End a process, and tell its job's user."""
        allocation = offence.allocation
        why_not = await self._terminate(offence.pid)
        facts = (
            f"attempt {allocation.attempt} had {mebibytes(offence.used)} of GPU memory, with "
            f"{mebibytes(allocation.memory)} allocated"
        )
        self._log.warning(
            "above its allocation",
            job=allocation.name,
            pid=offence.pid,
            facts=facts,
            why_not=why_not,
        )
        if why_not:
            message = f"{facts}; process {offence.pid} could not be ended: {why_not}"
        else:
            message = f"{facts}: process {offence.pid} was ended; raise spec.gpuMemory"
        self.events.warn(_job_of(allocation), "AboveAllocation", message)
        await asyncio.sleep(_END_AGAIN)

    def uses(self) -> dict[str, JobUse]:
        """Say what each allocated job uses, by UID; one not yet seen on the GPU is left out."""
        return {
            allocation.job: JobUse(
                trace.last.memory, trace.peak, trace.first, self._excess.get(key, 0)
            )
            for key, allocation in self.allocations.items()
            if (trace := self._traces.get(key)) is not None
        }

    async def close(self) -> None:
        """Leave what is being ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _job_of(allocation: AttemptAllocation) -> SharedGPUJob:
    """Return the job of an allocation, for an Event about it."""
    meta = ObjectMeta(name=allocation.name, namespace=allocation.namespace, uid=allocation.job)
    return SharedGPUJob.model_construct(metadata=meta)  # type: ignore[call-arg]
