"""The jobs on the GPU: attributes processes to them, measures their usage, applies their limits."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import structlog

from partita.agent.allocations import AllocationReader, Key, LedgerEntry
from partita.agent.attribution.claim_sharers import ClaimSharers
from partita.agent.attribution.processes import PodsOfProcesses
from partita.agent.attribution.unknown_processes import UnknownProcessTracker
from partita.agent.gpu_report import JobReport
from partita.agent.limits.enforcer import LimitEnforcer
from partita.agent.limits.job_limits import JobLimits, LimitedUse
from partita.agent.limits.process_limits import (
    ClientLimit,
    ContextSize,
    LimitViolation,
    memory_violations,
)
from partita.agent.mps.client_exits import ClientExits, JobClient
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import (
    GPUSample,
    TracePoint,
    UsageTrace,
    attribute,
)
from partita.agent.usage.moving_mean import MovingMean
from partita.agent.usage.neighbours import UNKNOWN, NeighbourTimes, Times
from partita.kube.errors import KubernetesError
from partita.kube.events import Events
from partita.models import SharingMode
from partita.models.profile import application_hash
from partita.models.quantities import mebibytes

__all__ = ["MeasuredRun", "RunningJobs"]

_READ_WITHIN: Final = 1.0
"""Seconds to read the ledger before a fault is reported."""
_READ_AGAIN: Final = 1.0
"""Seconds before the ledger is read again because of a process in an unknown Pod."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that was removed from the ledger, or one that never ends by itself."""

    allocation: LedgerEntry
    trace: UsageTrace
    at: float
    """Time of its last sample, from `time.time`."""
    beside: Times = field(default_factory=dict)
    """The jobs that used the GPU at the same time; empty under time slicing."""


class RunningJobs:
    """The jobs of one GPU.

    Parameters
    ----------
    ledger
        The allocations of the GPU.
    events
        Writes the Event about unknown processes.
    mode
        How the GPU is shared.
    enforcer
        Terminates processes.
    limits
        The driver's limits of the jobs' containers.
    processes
        Finds the Pods of processes.
    mps_servers
        Returns the PIDs of the MPS servers of the GPU.
    sharers
        Finds the Pods that use claims of other Pods.
    times
        How long it waits.
    """

    def __init__(
        self,
        *,
        ledger: AllocationReader,
        events: Events,
        mode: SharingMode,
        enforcer: LimitEnforcer,
        limits: JobLimits,
        processes: PodsOfProcesses,
        mps_servers: Callable[[], set[int]],
        sharers: ClaimSharers,
        times: AgentTimes,
    ) -> None:
        self._times = times
        self.ledger = ledger
        self.measured: asyncio.Queue[MeasuredRun] = asyncio.Queue()
        """Runs whose measurement may be merged into a profile."""
        self.read_now = asyncio.Event()
        """Is set when the ledger should be read soon."""
        self.sample: GPUSample | None = None
        """The newest sample."""
        self.utilization = MovingMean()
        """GPU utilisation, percent."""
        self.processes_of: Counter[Key] = Counter()
        """Number of processes on the GPU in the newest sample, by run."""
        self.unknown = UnknownProcessTracker(times)
        self.exits = ClientExits()
        """The ends of MPS clients."""
        self.all_limited = False
        """Whether the driver limits all jobs that use the GPU, as was read back."""
        self._events = events
        self._mode = mode
        self._enforcer = enforcer
        self.limits = limits
        self.processes = processes
        self._mps_servers = mps_servers
        self._sharers = sharers
        self._traces: dict[Key, UsageTrace] = {}
        self._neighbours: NeighbourTimes[Key] = NeighbourTimes()
        self._learn_after: dict[Key, float] = {}
        """Seconds of use after which the usage of a lasting workload is stored next."""
        self._unused_since: dict[Key, float] = {}
        """Time of the first sample of each claim that has not used the GPU since."""
        self._clients = ClientLimit()
        self._context = ContextSize()
        self._counted: dict[Key, LimitedUse] = {}
        self._unknown_reported = 0
        self._unknown_pods: dict[str, float] = {}
        """Time of the last read of the ledger because of an unknown Pod, by the Pod's UID."""
        self._log = structlog.get_logger(__name__)

    @cached_property
    def _server_pod(self) -> str | None:
        """UID of the Pod of the agent and of MPS."""
        return self.processes.identity(os.getpid()).pod

    async def read_ledger(self) -> None:
        """Read the ledger; attempts that were removed from it are finished.

        Raises
        ------
        KubernetesError
            The GPUServer cannot be read.
        """
        self._finish(await self.ledger.read())
        await self._sharers.update(self._unknown_in_pods())

    async def apply(self, body: Mapping[str, Any]) -> None:
        """Apply a version of the GPUServer that the watch has sent."""
        self._finish(self.ledger.apply(body, time.time()))

    def _finish(self, removed: Iterable[LedgerEntry]) -> None:
        for allocation in removed:
            trace = self._traces.pop(allocation.key, None)
            self._learn_after.pop(allocation.key, None)
            beside = self._neighbours.pop(allocation.key)
            if trace is not None and self.sample is not None:
                run = MeasuredRun(allocation, trace, self.sample.at, beside)
                self.measured.put_nowait(run)
            if trace is None:
                self.exits.attempt_ended_unseen()
            self._enforcer.forget(allocation.key)

    async def has_single_job(self) -> bool:
        """Read the ledger; return whether it has a single job. False if it cannot be read."""
        try:
            async with asyncio.timeout(_READ_WITHIN):
                await self.read_ledger()
        except (KubernetesError, TimeoutError):
            return False
        return not self.ledger.problem and len(self.ledger.allocations) == 1

    def without_allocation(self, pids: set[int]) -> set[int]:
        """Return the processes that belong to no job of this GPU."""
        known = self.ledger.by_pod()
        return {pid for pid, pod in self.processes.of(pids).items() if pod not in known}

    def add_samples(self, samples: list[GPUSample]) -> None:
        """Add samples, the oldest first, and enforce the limits."""
        allocations: dict[int, LedgerEntry] = {}
        violations: list[LimitViolation] = []
        for sample in samples:
            if sample.limits is not None:
                self.limits.add(sample.limits)
                self._counted = self.limits.used()
            allocations = self._attribute_processes(sample)
            self._add_usage(sample, allocations)
            self._context.add(sample.at, {pid: sample.memory[pid] for pid in allocations})
            self._update_unknown(sample, set(allocations))
            if self._mode is SharingMode.MPS:
                violations = self._clients.violations(sample.at, allocations)
                self._update_exits(sample.at, allocations)
            self.utilization.add(sample.at, sample.utilization)
            self.sample = sample
        self.processes_of = Counter(entry.key for entry in allocations.values())
        self._learn()
        if self.sample is not None and self._mode is not SharingMode.EXCLUSIVE:
            memory, context = self.sample.memory, self._context.bytes
            above = memory_violations(memory, allocations, context, self._counted)
            violations = above + violations
        self.all_limited = {a.key for a in allocations.values()} <= self._counted.keys()
        for violation in violations:
            self._enforcer.limit(violation)
        self._terminate_unknown()
        self._report_unknown()

    def _attribute_processes(self, sample: GPUSample) -> dict[int, LedgerEntry]:
        """Return the allocation of each process that has one."""
        by_pod = self.ledger.by_pod()
        found: dict[int, LedgerEntry] = {}
        for pid, pod in self.processes.of(set(sample.memory)).items():
            if pod is None or pod == self._server_pod:
                continue
            if pod in by_pod:
                found[pid] = by_pod[pod]
            elif sample.at - self._unknown_pods.get(pod, 0.0) >= _READ_AGAIN:
                self._unknown_pods[pod] = sample.at
                self.read_now.set()
        return found

    def _update_exits(self, at: float, allocations: Mapping[int, LedgerEntry]) -> None:
        if allocations.keys() == self.exits.clients.keys():
            return
        clients = {}
        for pid, allocation in allocations.items():
            process = self.processes.known(pid)
            clients[pid] = JobClient(allocation, process.pod or "", process.container)
        self.exits.update(at, clients)

    def _add_usage(self, sample: GPUSample, allocations: dict[int, LedgerEntry]) -> None:
        jobs = {pid: allocation.key for pid, allocation in allocations.items()}
        counted = {key: use.used for key, use in self._counted.items()}
        usage = attribute(sample, jobs, counted, mps=self._mode is SharingMode.MPS)
        for key, used in usage.items():
            if key not in self._traces:
                self._traces[key] = UsageTrace(idle_after=self._times.idle_after)
            self._traces[key].add(sample.at, used)
        if self._mode is not SharingMode.TIME_SLICING and self.sample is not None:
            self._neighbours.add(sample.at - self.sample.at, {k: self._hash(k) for k in usage})
        for key in self._traces.keys() - usage.keys():
            # The job has an allocation, but no process on the GPU at the moment.
            self._traces[key].add(sample.at, TracePoint())
        pods = {entry.key for entry in self.ledger.allocations.values() if not entry.job}
        unused = pods - self._traces.keys()
        self._unused_since = {key: self._unused_since.get(key, sample.at) for key in unused}

    def _hash(self, key: Key) -> str:
        allocation = self.ledger.allocations.get(key)
        if allocation is None or not allocation.application:
            return UNKNOWN
        return application_hash(allocation.namespace, allocation.application)

    def _learn(self) -> None:
        """Queue what workloads that never end have used, each time they lasted twice as long."""
        for key, trace in self._traces.items():
            allocation = self.ledger.allocations.get(key)
            if allocation is None or not allocation.lasting or self.sample is None:
                continue
            lasted = self.sample.at - (trace.first or self.sample.at)
            if lasted >= self._learn_after.get(key, self._times.learn_after):
                self._learn_after[key] = 2 * lasted
                self.measured.put_nowait(MeasuredRun(allocation, trace, self.sample.at))

    def _update_unknown(self, sample: GPUSample, allocated: set[int]) -> None:
        pods = self.processes.of(set(sample.memory))
        own = {pid for pid, pod in pods.items() if pod is not None and pod == self._server_pod}
        known = allocated | own | self._mps_servers()
        self.unknown.update(sample.at, sample.memory, pods, known, self.ledger.complete_at)
        if self.unknown.ledger_outdated:
            self.read_now.set()

    def _unknown_in_pods(self) -> set[str]:
        """Return the UIDs of the Pods of unknown processes."""
        return {process.pod for process in self.unknown.found if process.pod is not None}

    def _terminate_unknown(self) -> None:
        """Terminate unknown processes in Pods that share a claim, or in all Pods if configured."""
        for process in self.unknown.found:
            if (sharer := self._sharers.of(process.pod)) is not None:
                self._enforcer.sharer(process, sharer)
            elif self.ledger.terminate_unknown and process.pod and self.ledger.server is not None:
                self._enforcer.unknown(process, self.ledger.server)

    def _report_unknown(self) -> None:
        found = self.unknown.found
        if len(found) > self._unknown_reported and self.ledger.server is not None:
            used = mebibytes(sum(process.memory for process in found))
            pods = sum(process.pod is not None for process in found)
            message = (
                f"{len(found)} processes ({pods} in Pods) use {used} of the GPU without an "
                "allocation"
            )
            self._log.warning("unknown processes", found=found)
            self._events.warn(self.ledger.server, "UnknownProcesses", message)
        self._unknown_reported = len(found)

    def usage(self) -> dict[str, JobReport]:
        """Return the usage of each job that has used the GPU, and of idle claims, by UID."""
        newest = self.sample.at if self.sample is not None else 0.0
        idle = {
            key[0]: JobReport(0, 0, None, idle_since=since)
            for key, since in self._unused_since.items()
            if newest - since >= self._times.idle_after
        }
        return idle | {
            allocation.uid: JobReport(
                trace.last.memory,
                trace.peak,
                trace.first,
                trace.utilization,
                self._enforcer.excess_clients(key),
                self.limits.mismatch(key),
                trace.idle_since,
                allocation.memory,
            )
            for key, allocation in self.ledger.allocations.items()
            if (trace := self._traces.get(key)) is not None
        }
