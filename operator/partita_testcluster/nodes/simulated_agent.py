"""Simulates the agent of a server Pod: reports its GPU, prepares claims, and simulates faults."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn

import structlog

from partita.agent.errors import PrepareError
from partita.constants import GROUP, VERSION
from partita.kube.errors import KubernetesError, NotFoundError
from partita.models.conditions import Condition, set_condition
from partita.models.gpu_server import GPUServerSpec
from partita.models.profile import Environment
from partita.models.quantities import mebibytes, parse_memory
from partita_policies.types import Sharing
from partita_testcluster.nodes.claims import SimulatedClaim
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.node import Machine, SimulatedDevice
from partita_testcluster.nodes.simulated_capabilities import SimulatedCapabilities, StatedCondition
from partita_testcluster.nodes.simulated_claims import PreparedSlice, SimulatedClaims
from partita_testcluster.nodes.simulated_pods import Server, SimulatedPod

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

_STATUS: Final[tuple[Literal["False"], Literal["True"]]] = ("False", "True")

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
        self._reported: tuple[Body, Body, dict[str, StatedCondition]] = {}, {}, {}
        self._reported_jobs = set((self._status.get("usage") or {}).get("jobs") or ())
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
        return self._body.get("status") or {}

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
        return self._claims.prepare(claim, pod, self._body)

    def unprepare(self, claim: str) -> None:
        """Forget a claim whose containers have ended."""
        self._claims.unprepare(claim)

    def probe(self) -> None:
        """Read the limit of the probe Pod's container, which has just started."""
        self._probed = True
        self.device.changed.set()

    def _forget_released(self) -> None:
        """Drop the usage of ended jobs that are reported and released by the operator."""
        allocations, ended = self._status.get("allocations") or {}, self.device.ended
        for uid in [u for u in ended if u in self._reported_jobs and u not in allocations]:
            del ended[uid]

    async def serve(self) -> NoReturn:
        """Report the GPU until cancelled."""
        await self._introduce()
        self._log.info("serving", mode=self._server.sharing)
        while True:
            await self.device.changed.wait()
            self.device.changed.clear()
            if self._fault is not None:
                await self._handle_fault(self._fault)
            elif "uuid" not in self._status:  # the operator has forgotten an earlier server Pod
                await self._introduce()
            elif self._state() != self._reported:
                await self._report({})
                pause = max(USAGE_INTERVAL, len(self._cluster.agents) / USAGE_RATE)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._faulted.wait()

    async def _introduce(self) -> None:
        """Report everything about the GPU."""
        spec = self.device.spec
        self._reported = {}, {}, {}
        await self._report(
            {
                "node": spec.name,
                "uuid": self.device.uuid,
                "product": spec.product,
                "memory": mebibytes(spec.gpu_memory),
                "smCount": spec.sm_count,
                "pcieBandwidth": PCIE_BANDWIDTH,
                "driverVersion": spec.driver_version,
            },
            Faulted=(False, "Healthy", ""),
        )

    @property
    def environment(self) -> Environment:
        """Description of the node and the GPU for profiles."""
        spec = self.device.spec
        return Environment(
            node=spec.name,
            product=spec.product,
            memory=spec.gpu_memory,
            sm_count=spec.sm_count,
            pcie_bandwidth=parse_memory(PCIE_BANDWIDTH),
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
        usage = {"memory": "0", "gpuUtilization": 0, "jobs": dict.fromkeys(self._reported_jobs)}
        mps = (
            {"mps": {"state": "Stopped", "clients": 0}}
            if self._server.sharing is Sharing.MPS
            else {}
        )
        await self._send({"usage": usage} | mps, Ready=(False, "AgentStopped", ""))

    async def _handle_fault(self, fault: _Fault) -> None:
        """Report a fault, end the clients, wait until they are released, and recover."""
        self._log.warning("faulted", reason=fault.reason)
        why = fault.reason, fault.message
        await self._report({}, Ready=(False, *why), Faulted=(True, *why))
        await self._until(lambda: not self.device.tenants, JOBS_LEAVE)
        self.device.stop_all(f"CUDA error: {fault.error}")
        await self._until(lambda: not self._status.get("allocations"), OPERATOR_RELEASES)
        await self._cluster.clock.sleep(fault.recovery)
        self.device.stop_all(f"CUDA error: {fault.error}")  # jobs that were bound during the fault
        with suppress(NotFoundError):  # the GPUServer was deleted
            patch = {"metadata": {"annotations": {FAULT_ANNOTATION: None}}}
            await self._cluster.api.call("PATCH", self._path, patch)
        self._fault = None
        self._cluster.changes.notify()
        self._faulted.clear()
        healthy = False, "Recovered", ""
        _, _, stated = self._state()
        ready = (True, "Recovered", "") if stated["Ready"][0] else stated["Ready"]
        await self._report({}, Ready=ready, Faulted=healthy)
        self._log.info("recovered", reason=fault.reason)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self.device.changed.clear()
                    await self.device.changed.wait()

    def _usage(self) -> Body:
        """Return the usage; an ended job keeps its peak and first use until it is released."""
        gpu, tenants = self.device.gpu, self.device.tenants
        jobs = {uid: used.dump() for uid, used in self.device.ended.items()}
        for key, tenant in tenants.items():
            jobs[tenant.job_uid] = self.device.use(key).dump()
        utilisation = round(gpu.utilisation)
        usage = {"memory": mebibytes(gpu.used), "gpuUtilization": utilisation, "jobs": jobs}
        if self._server.sharing is not Sharing.MPS:
            return {"usage": usage}
        clients = sum(tenant.processes for tenant in tenants.values())
        state = "Faulted" if self._fault is not None else "Ready"
        return {"usage": usage, "mps": {"state": state, "clients": clients}}

    def _capabilities(self) -> SimulatedCapabilities | None:
        """Return what the GPU supports; None in modes other than MPS."""
        if self._server.sharing is not Sharing.MPS or "spec" not in self._body:
            return None
        spec = GPUServerSpec.model_validate(self._body["spec"])
        return SimulatedCapabilities(self.device.spec.driver_version, spec, self._probed)

    def _state(self) -> tuple[Body, Body, dict[str, StatedCondition]]:
        """Return the usage, and the fields and conditions that depend on the capabilities."""
        found = self._capabilities()
        if found is None:
            return self._usage(), {}, {"Ready": (True, "AgentReporting", "")}
        return self._usage(), found.status(), found.conditions()

    async def _report(self, status: Body, **conditions: StatedCondition) -> None:
        """Write the usage, other fields of the status, and the capabilities if they changed."""
        old, self._reported = self._reported, self._state()
        current, capabilities, stated = self._reported
        if (capabilities, stated) != old[1:]:
            status, conditions = status | capabilities, stated | conditions
        usage = current["usage"]
        left = self._reported_jobs - usage["jobs"].keys()
        self._reported_jobs = set(usage["jobs"])
        self._forget_released()
        usage = usage | {"jobs": usage["jobs"] | dict.fromkeys(left)}
        await self._send(status | current | {"usage": usage}, **conditions)

    async def _send(self, status: Body, **new: StatedCondition) -> None:
        """Write a part of the GPUServer's status; keep conditions of other writers."""
        conditions = tuple(map(Condition.model_validate, self._status.get("conditions") or ()))
        for kind, (holds, reason, message) in new.items():
            condition = Condition(type=kind, status=_STATUS[holds], reason=reason, message=message)
            conditions = set_condition(conditions, condition, datetime.now(UTC))
        if new:
            status = status | {"conditions": [condition.dump() for condition in conditions]}
        try:
            await self._cluster.api.call("PATCH", f"{self._path}/status", {"status": status})
        except KubernetesError as error:
            self._log.warning("not reported", error=str(error))
