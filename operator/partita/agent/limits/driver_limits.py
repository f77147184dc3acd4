"""Limits of the driver on one GPU: whether they work, and what limits the memory of jobs.

It has a probe Pod show whether the container toolkit sets limits (`probe`), decides what limits
jobs (`decision`), and finds the containers that should have limits (`job_limits`).

With the kernel's controller dmem the driver adds the soft limit of a container to those of all
cgroups above, and they keep it when the container's cgroup is removed
(https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Ancestor reservation
propagation").

An assumption (driver-limit-soft): what cgroups above a removed one keep of its soft limit has no
effect, because a container's own soft limit is what protects its memory. If not, it must be set to
the sum of what is below.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import structlog

from partita.agent.allocations import Key
from partita.agent.errors import NVMLError
from partita.agent.gpu.nvml import NVMLDevice
from partita.agent.gpu.nvml_memory_limits import (
    MemoryLimits,
    can_limit_memory,
    memory_limits,
    set_memory_limits,
)
from partita.agent.gpu.nvml_threads import in_thread
from partita.agent.health import Health, Source
from partita.agent.limits.cgroups import CgroupTree
from partita.agent.limits.decision import LimitDecision, LimitSupport, ProbeResult, decide
from partita.agent.limits.job_limits import JobLimits
from partita.agent.limits.probe import LimitProbe
from partita.agent.times import AgentTimes
from partita.kube.errors import KubernetesError
from partita.models import GPUServer
from partita.models.sharing import Enforcement

__all__ = ["DriverLimits", "limit_support"]


def limit_support(device: NVMLDevice, driver: str, cgroups: Path) -> LimitSupport:
    """Look up what the driver and the node have for limits; call it in a thread.

    Parameters
    ----------
    driver
        The driver's version.
    cgroups
        Where the node's cgroups are mounted.

    Raises
    ------
    NVMLError
        The driver does not answer.
    """
    tree, functions = CgroupTree(cgroups), can_limit_memory(device, cgroups)
    return LimitSupport(driver, functions, tree.version, tree.has_dmem)


@dataclass
class DriverLimits:
    """Limits of the driver on one GPU that is shared by MPS.

    Parameters
    ----------
    device
        The GPU.
    support
        What the driver and the node have.
    probe
        Reads the probe Pod.
    jobs
        The containers of jobs that should have limits.
    variables
        Returns the variables of the containers of each prepared allocation.
    times
        How long it waits.
    """

    device: NVMLDevice
    support: LimitSupport
    probe: LimitProbe
    jobs: JobLimits
    variables: Callable[[], dict[Key, Mapping[str, str]]]
    health: Health
    times: AgentTimes
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    def __post_init__(self) -> None:
        self.probe.show(self._shown_before(), time.monotonic())
        self.decision = self._decide()
        """What limits the memory of jobs now."""

    async def run(self) -> NoReturn:
        """Check until cancelled."""
        while True:
            try:
                await self._check(time.monotonic())
            except (NVMLError, KubernetesError, TimeoutError) as error:
                self._log.warning("limits not checked", error=str(error))
            await asyncio.sleep(self.times.limits_every)

    async def _check(self, now: float) -> None:
        device, server = self.device, self.jobs.ledger.server
        if self.support.missing is None:
            await self.jobs.find(self.variables(), now)
            self.jobs.add(await in_thread(_read, device, self.jobs.cgroups))
            await self._correct(device)
            if server.spec.enforcement is not Enforcement.CLIENT:
                await self._check_probe(device, server, now)
        before, self.decision = self.decision, self._decide()
        if self.decision != before:
            self._log.info("memory limits", decision=self.decision)

    async def _correct(self, device: NVMLDevice) -> None:
        """Set the limits of containers whose claims have others now.

        A limit that cannot be set is reported when it is read back (`JobLimits`).
        """
        for cgroup, limits in self.jobs.to_correct().items():
            try:
                await in_thread(set_memory_limits, device, cgroup, limits.soft, limits.hard)
            except NVMLError as error:
                self._log.warning("limit not set", cgroup=str(cgroup), error=str(error))

    async def _check_probe(self, device: NVMLDevice, server: GPUServer, now: float) -> None:
        if server.spec.enforcement is Enforcement.DRIVER and self.jobs.wrong:
            # The operator ends the job. The next one must not start here before limits work again.
            self.probe.show(ProbeResult("Unknown"), now)
            return
        await self.probe.check(device, server, now, waiting=self.health.serves_containers)

    def _decide(self) -> LimitDecision:
        requested = self.jobs.ledger.server.spec.enforcement
        decision = decide(requested, self.support, self.probe.result, self.jobs.wrong)
        self.health.set(Source.LIMITS, decision.problem)
        return decision

    def _shown_before(self) -> ProbeResult:
        """Return what an earlier agent was shown, if jobs may leave no slot for a probe Pod now."""
        status = self.jobs.ledger.server.status
        hook = status.capabilities.limit_hook if status.capabilities is not None else None
        is_known = status.allocations and status.driver_version == self.support.driver
        return ProbeResult(hook if hook and is_known else "Unknown")

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities that concern limits, as in the status."""
        found: dict[str, Any] = {"memoryBackend": self.support.backend}
        requested = self.decision.condition.reason != "NotRequested"
        if requested and self.support.missing is None:
            found["limitHook"] = self.probe.hook
        return found


def _read(device: NVMLDevice, cgroups: Iterable[Path]) -> dict[Path, MemoryLimits | None]:
    return {cgroup: memory_limits(device, cgroup) for cgroup in cgroups}
