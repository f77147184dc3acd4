"""The jobs on the GPU: hands its samples to what measures jobs, limits them and sees their ends."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from partita.agent.allocations import AllocationReader, Key, LedgerEntry
from partita.agent.attribution.allocated_processes import AllocatedProcesses, summary
from partita.agent.attribution.claim_sharers import ONE_POD, ClaimSharers
from partita.agent.attribution.processes import PodsOfProcesses
from partita.agent.gpu_report import JobReport
from partita.agent.limits.cgroups import CgroupTree
from partita.agent.limits.job_limits import JobLimits
from partita.agent.limits.violations import (
    ClientLimit,
    ContextSize,
    LimitEnforcer,
    Violation,
    memory_violations,
)
from partita.agent.mps.client_exits import ClientExits, JobClient
from partita.agent.settings import AgentSettings
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import GPUSample, MovingMean
from partita.agent.usage.run_usage import RunUsage
from partita.kube.client import Kube
from partita.kube.errors import KubernetesError
from partita.kube.events import Events
from partita.models import SharingMode
from partita.models.quantities import mebibytes
from partita.models.sharing import UnknownProcessesPolicy

__all__ = ["RunningJobs"]

_READ_WITHIN: Final = 1.0
"""Seconds to read the ledger before a fault is reported."""


class RunningJobs:
    """The jobs of one GPU.

    Parameters
    ----------
    kube
        The API server.
    settings
        The agent's settings.
    events
        Writes Events.
    terminate
        Terminates the work of a PID; returns the error, empty on success.
    times
        How long it waits.
    """

    def __init__(
        self,
        kube: Kube,
        settings: AgentSettings,
        events: Events,
        terminate: Callable[[int], Awaitable[str]],
        times: AgentTimes,
    ) -> None:
        self.mode = settings.mode
        self.ledger = ledger = AllocationReader(kube, settings.server)
        """The allocations of the GPU."""
        pods, sharers = PodsOfProcesses(settings.proc), ClaimSharers(kube, ledger)
        self.processes = AllocatedProcesses(ledger, pods, sharers, settings.pod_uid, times)
        """Whose the processes on the GPU are."""
        self.run_usage = RunUsage(ledger, settings.mode, times)
        """What the jobs have used."""
        self.limits = JobLimits(kube, ledger, CgroupTree(settings.cgroups), events)
        """The driver's limits of the jobs' containers."""
        self.enforcer = LimitEnforcer(events, terminate, times)
        """Terminates processes."""
        self.exits = ClientExits()
        """The ends of MPS clients."""
        self.sample: GPUSample | None = None
        """The newest sample."""
        self.utilization = MovingMean()
        """GPU utilisation, percent."""
        self.processes_of: Counter[Key] = Counter()
        """Number of processes on the GPU in the newest sample, by run."""
        self._clients = ClientLimit()
        self._context = ContextSize()
        self._unknown_reported = 0
        self._events = events
        self._log = structlog.get_logger(__name__)

    async def read_ledger(self) -> None:
        """Read the ledger; attempts that were removed from it are finished.

        Raises
        ------
        KubernetesError
            The GPUServer cannot be read.
        """
        self._finish(await self.ledger.read())
        await self.processes.sharers.update(self.processes.unknown_pods)

    async def apply(self, body: Mapping[str, Any]) -> None:
        """Apply a version of the GPUServer that the watch has sent."""
        self._finish(self.ledger.apply(body, time.time()))

    def _finish(self, removed: Iterable[LedgerEntry]) -> None:
        for allocation in removed:
            if not self.run_usage.end(allocation):
                self.exits.ended_unseen = True
            self.enforcer.forget(allocation.key)

    async def has_single_job(self) -> bool:
        """Read the ledger; return whether it has a single job. False if it cannot be read."""
        try:
            async with asyncio.timeout(_READ_WITHIN):
                await self.read_ledger()
        except (KubernetesError, TimeoutError):
            return False
        return not self.ledger.problem and len(self.ledger.allocations) == 1

    def add_samples(self, samples: Iterable[GPUSample]) -> None:
        """Add samples, the oldest first, and enforce the limits."""
        allocations: dict[int, LedgerEntry] = {}
        violations: list[Violation] = []
        limited = self.limits.used()
        counted = {key: use.used for key, use in limited.items()}
        for sample in samples:
            allocations = self.processes.attribute(sample.at, sample.memory)
            runs = {pid: allocation.key for pid, allocation in allocations.items()}
            self.run_usage.add(sample, runs, counted)
            if self.mode is SharingMode.MPS:
                violations = self._clients.violations(sample.at, allocations)
                self._update_exits(sample.at, allocations)
            self.utilization.add(sample.at, sample.utilization)
            self.sample = sample
        self.processes_of = Counter(entry.key for entry in allocations.values())
        self.run_usage.learn()
        if self.sample is not None and self.mode is not SharingMode.EXCLUSIVE:
            memory = {pid: self.sample.memory[pid] for pid in allocations}
            self._context.add(self.sample.at, memory)
            above = memory_violations(memory, allocations, self._context.bytes, limited)
            violations = above + violations
        for violation in violations:
            self.enforcer.enforce(violation)
        self._terminate_unknown()
        self._report_unknown()

    def _update_exits(self, at: float, allocations: Mapping[int, LedgerEntry]) -> None:
        if allocations.keys() == self.exits.clients.keys():
            return
        known = self.processes.pods.known
        clients = {pid: JobClient(a, known(pid).container) for pid, a in allocations.items()}
        self.exits.update(at, clients)

    def _terminate_unknown(self) -> None:
        """Terminate unknown processes in Pods that share a claim, or in all Pods if configured."""
        server = self.ledger.server
        for process in self.processes.unknown:
            used = f"used {mebibytes(process.memory)} of the GPU without an allocation"
            if (sharer := self.processes.sharers.of(process.pod)) is not None:
                used = (
                    f"ResourceClaim {sharer.claim} is allocated for Pod {sharer.owner}, and a "
                    f"process of this Pod {used}"
                )
                violation = Violation(process.pid, sharer.pod, "ClaimShared", used, ONE_POD)
            elif process.pod and server.spec.unknown_processes is UnknownProcessesPolicy.TERMINATE:
                used = f"a process in a Pod {used}"
                reason = "UnknownProcessTerminated"
                violation = Violation(process.pid, server, reason, used)
            else:
                continue
            self.enforcer.enforce(violation)

    def _report_unknown(self) -> None:
        found = self.processes.unknown
        if len(found) > self._unknown_reported:
            message = (
                "{count} processes ({inPods} in Pods) use {memory} of the GPU without an allocation"
            ).format_map(summary(found))
            self._log.warning("unknown processes", found=found)
            self._events.warn(self.ledger.server, "UnknownProcesses", message)
        self._unknown_reported = len(found)

    def usage(self) -> dict[str, JobReport]:
        """Return the usage of each job that has used the GPU, and of idle claims, by UID."""
        idle = {
            key[0]: JobReport(0, 0, None, idle_since=since)
            for key, since in self.run_usage.idle_claims().items()
        }
        return idle | {
            allocation.uid: JobReport(
                trace.last.memory,
                trace.peak,
                trace.first,
                trace.utilization,
                self.enforcer.excess_clients(key),
                self.limits.mismatch(key),
                trace.idle_since,
                allocation.ceiling,
            )
            for key, allocation in self.ledger.allocations.items()
            if (trace := self.run_usage.traces.get(key)) is not None
        }
