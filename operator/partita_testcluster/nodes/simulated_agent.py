"""Simulates the agent of a server Pod: reports its GPU, prepares claims, and simulates faults."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import structlog

from partita.agent.errors import PrepareError
from partita.agent.gpu.nvml import GPUIdentity
from partita.agent.gpu_report import GPUReport
from partita.agent.health import Health, HealthProblem, Source
from partita.agent.reporter import status_patch
from partita.constants import GROUP, VERSION
from partita.kube.errors import KubernetesError, NotFoundError
from partita.models.gpu_server import GPUServerSpec
from partita.models.profile import Environment
from partita.models.quantities import mebibytes, parse_memory
from partita_policies.types import Sharing
from partita_testcluster.nodes.claims import SimulatedClaim
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.node import Machine, SimulatedDevice
from partita_testcluster.nodes.simulated_claims import PreparedSlice, SimulatedClaims
from partita_testcluster.nodes.simulated_pods import Server, SimulatedPod
from partita_testcluster.nodes.simulated_support import SimulatedSupport

__all__ = ["FAULTS", "FAULT_ANNOTATION", "GPU_SERVERS", "SimulatedAgent"]

log = structlog.get_logger(__name__)

GPU_SERVERS: Final = f"/apis/{GROUP}/{VERSION}/gpuservers"
FAULT_ANNOTATION: Final = "sim.partita.dev/fault"
"""Annotation of a GPUServer that starts one of `FAULTS`; the agent removes it after recovery."""

PCIE_BANDWIDTH: Final = "31500M"
"""Bytes per second of PCIe 4.0 x16: 16 GT/s on 16 lanes, 128 of 130 bits."""
USAGE_INTERVAL: Final = 1.0
"""Minimum seconds between two usage reports of one GPU."""
USAGE_RATE: Final = 25.0
"""Maximum usage reports in a second, of all GPUs: the operator receives each of these writes."""
JOBS_LEAVE: Final = 1.0
"""Seconds after a fault until the programs on the GPU have failed."""
OPERATOR_RELEASES: Final = 30.0
"""Maximum seconds to wait before recovery until the operator has released all allocations."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Fault:
    """A fault of a GPU; `recovery` is the virtual seconds until it is healthy again."""

    reason: str
    message: str
    error: str
    recovery: float


# Errors: cudaError_t in the CUDA Runtime API. Xids: NVIDIA's catalogue.
FAULTS: Final[Mapping[str, _Fault]] = {
    "mps": _Fault("MPSFault", "The MPS server has failed", "cudaErrorMpsClientTerminated", 2),
    "gpu-lost": _Fault("GPULost", "Xid 79: off the bus", "cudaErrorDevicesUnavailable", 10),
    "xid": _Fault("XidError", "Xid 48: double-bit ECC error", "cudaErrorECCUncorrectable", 5),
}


class SimulatedAgent:
    """The agent of one GPU; offers the GPU from its creation on.

    Parameters
    ----------
    server
        The settings of its Pod.
    device
        The GPU.
    machine
        The machine of the GPU.
    cluster
        The state that all parts of the simulation share.

    Attributes
    ----------
    device
        The GPU.
    """

    def __init__(
        self, server: Server, device: SimulatedDevice, machine: Machine, cluster: SimulatedCluster
    ) -> None:
        self._server = server
        self.device = device
        self._machine = machine
        self._cluster = cluster
        self._path = f"{GPU_SERVERS}/{server.name}"
        self._log = log.bind(server=server.name, node=machine.spec.name, gpu=device.uuid)
        self._asked = ""
        self._fault: _Fault | None = None
        self._probed = False
        self._faulted = asyncio.Event()
        self._health = Health()
        self._written: Body = {"metadata": {}}
        self._claims = SimulatedClaims(device)
        cluster.agents[server.name] = self
        cluster.changes.notify()
        self.observe()

    @property
    def node(self) -> str:
        """Name of its node."""
        return self._machine.spec.name

    @property
    def _body(self) -> Body:
        return self._cluster.servers.get(self._server.name, {"metadata": {}})

    @property
    def _status(self) -> Body:
        """The status after the last write, or a newer one."""
        known = (self._body, self._written)
        newest = max(known, key=lambda body: int(body["metadata"].get("resourceVersion", 0)))
        return newest.get("status") or {}

    def observe(self) -> None:
        """Handle a change of its GPUServer; a requested fault occurs once."""
        asked = (self._body["metadata"].get("annotations") or {}).get(FAULT_ANNOTATION, "")
        if asked != self._asked:
            self._asked = asked
            fault = FAULTS.get(asked)
            if fault is not None and (asked != "mps" or self._server.sharing is Sharing.MPS):
                self._fault = fault
                self._faulted.set()
            elif asked:
                self._log.warning("no such fault", fault=asked, mode=self._server.sharing)
        self._forget_released()
        self.device.changed.set()

    def prepare(self, claim: SimulatedClaim, pod: SimulatedPod) -> PreparedSlice:
        """Prepare a claim whose allocation names this GPU.

        Raises
        ------
        PrepareError
            The containers of the claim must not start now; the message says why.
        """
        if self._fault is not None or "spec" not in self._body:
            raise PrepareError(f"GPUServer {self._server.name} does not take containers now")
        return self._claims.prepare(claim, pod, self._body, self._support)

    def unprepare(self, claim: str) -> None:
        """Forget a claim whose containers have ended."""
        self._claims.unprepare(claim)

    def probe(self) -> None:
        """Read the limit of the probe Pod's container, which has just started."""
        self._probed = True
        self.device.changed.set()

    def _forget_released(self) -> None:
        """Drop the usage of ended jobs that are reported and released by the operator."""
        status, ended = self._status, self.device.ended
        reported = (status.get("usage") or {}).get("jobs") or {}
        for uid in ended.keys() & reported.keys() - (status.get("allocations") or {}).keys():
            del ended[uid]

    async def serve(self) -> NoReturn:
        """Report the GPU until cancelled."""
        self._log.info("serving", mode=self._server.sharing)
        while True:
            if self._fault is not None:
                await self._handle_fault(self._fault)
            elif await self._report(self._content()):
                pause = max(USAGE_INTERVAL, len(self._cluster.agents) / USAGE_RATE)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._faulted.wait()
            await self.device.changed.wait()
            self.device.changed.clear()

    @property
    def environment(self) -> Environment:
        """Description of the node and the GPU for profiles."""
        identity = self._identity
        return Environment(
            node=self.node,
            product=identity.product,
            memory=identity.memory,
            sm_count=identity.sm_count,
            pcie_bandwidth=identity.pcie_bandwidth,
        )

    def close(self) -> None:
        """Stop serving: MPS and its clients end."""
        del self._cluster.agents[self._server.name]
        self._cluster.changes.notify()
        self.device.stop_all(f"CUDA error: {FAULTS['mps'].error}")

    async def stop_reporting(self) -> None:
        """Report that the GPU is no longer served, unless another agent serves it."""
        leaving = "deletionTimestamp" in self._body["metadata"]
        if leaving or not self._machine.up or self._server.name in self._cluster.agents:
            return
        self._health.set(Source.GPU, HealthProblem("AgentStopped", "the GPU is released"))
        last = self._content()
        mps = last.mps and {"state": "Stopped", "clients": 0}
        await self._report(replace(last, memory=0, utilization=0, jobs={}, mps=mps))

    async def _handle_fault(self, fault: _Fault) -> None:
        """Report a fault, end the clients, wait until they are released, and recover."""
        self._log.warning("faulted", reason=fault.reason)
        self._health.set(Source.GPU, HealthProblem(fault.reason, fault.message, faulted=True))
        await self._report(self._content())
        await self._until(lambda: not self.device.tenants, JOBS_LEAVE)
        self.device.stop_all(f"CUDA error: {fault.error}")
        await self._until(lambda: not self._status.get("allocations"), OPERATOR_RELEASES)
        await self._cluster.clock.sleep(fault.recovery)
        self.device.stop_all(f"CUDA error: {fault.error}")  # jobs that were bound during the fault
        with suppress(NotFoundError):  # the GPUServer was deleted
            patch = {"metadata": {"annotations": {FAULT_ANNOTATION: None}}}
            await self._cluster.api.call("PATCH", self._path, patch)
        self._fault = None
        self._health.set(Source.GPU, None)
        self._cluster.changes.notify()
        self._faulted.clear()
        await self._report(self._content())
        self._log.info("recovered", reason=fault.reason)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self.device.changed.clear()
                    await self.device.changed.wait()

    @property
    def _identity(self) -> GPUIdentity:
        spec = self.device.spec
        return GPUIdentity(
            uuid=self.device.uuid,
            product=spec.product,
            architecture="",
            memory=spec.gpu_memory,
            sm_count=spec.sm_count,
            pcie_bandwidth=parse_memory(PCIE_BANDWIDTH),
            capability=(8, 0),
            mig=False,
            vgpu=False,
            driver=spec.driver_version,
        )

    @property
    def _support(self) -> SimulatedSupport | None:
        """What the GPU supports; None in modes other than MPS."""
        if self._server.sharing is not Sharing.MPS or "spec" not in self._body:
            return None
        spec = GPUServerSpec.model_validate(self._body["spec"])
        return SimulatedSupport(self._identity, spec, self._probed)

    def _content(self) -> GPUReport:
        """Return the content of the status; an ended job is in it until it is released."""
        gpu, tenants, identity = self.device.gpu, self.device.tenants, self._identity
        facts = {
            "node": self.node,
            "uuid": identity.uuid,
            "product": identity.product,
            "memory": mebibytes(identity.memory),
            "smCount": identity.sm_count,
            "pcieBandwidth": PCIE_BANDWIDTH,
            "driverVersion": identity.driver,
        }
        support, mps = self._support, None
        if support is not None:
            facts |= support.facts()
            self._health.set(Source.MPS_OPTIONS, support.selection.problem(support.mps))
            self._health.set(Source.LIMITS, support.limits.problem)
        if self._server.sharing is Sharing.MPS:
            state = "Faulted" if self._fault is not None else "Ready"
            mps = {"state": state, "clients": sum(one.processes for one in tenants.values())}
        running = {one.job_uid: self.device.use(key) for key, one in tenants.items()}
        return GPUReport(
            facts=facts,
            conditions=self._health.conditions(),
            total=identity.memory,
            memory=gpu.used,
            utilization=round(gpu.utilisation),
            jobs=self.device.ended | running,
            mps=mps,
            support=support.conditions() if support is not None else (),
        )

    async def _report(self, report: GPUReport) -> bool:
        """Write what has changed in the status; return whether that was something."""
        patch = status_patch(report, self._status, datetime.now(UTC))
        if not patch:
            return False
        try:
            self._written = await self._cluster.api.call(
                "PATCH", f"{self._path}/status", {"status": patch}
            )
        except KubernetesError as error:
            self._log.warning("not reported", error=str(error))
        self._forget_released()
        return True
