"""Pretends to be the agents in the server Pods: reports, offers slices, lives through faults."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from partita.constants import GROUP, LABEL_SERVER, VERSION
from partita.embedded.nodes.api import API, ApiError
from partita.embedded.nodes.node import Clock, Device, Machine
from partita.embedded.nodes.pods import Server, SimulatedPod
from partita.embedded.nodes.status import conditions_with
from partita.models.base import Condition, mebibytes

__all__ = ["FAULT_ANNOTATION", "GPU_FAULTS", "GPU_SERVERS", "Agent", "Agents"]

log = structlog.get_logger(__name__)

GPU_SERVERS: Final = f"/apis/{GROUP}/{VERSION}/gpuservers"
FAULT_ANNOTATION: Final = "sim.partita.dev/fault"

DRIVER_VERSION: Final = "580.95.05"
PCIE_BANDWIDTH: Final = "31500M"
"""Bytes per second of PCIe 4.0 x16: 16 GT/s on 16 lanes, 128 of 130 bits."""
USAGE_INTERVAL: Final = 1.0
"""Least seconds between two reports of one GPU's use."""
USAGE_RATE: Final = 25.0
"""Most reports of use a second, of all GPUs: each is a write that the operator sees, too."""
JOBS_LEAVE: Final = 1.0
"""Seconds after a fault until the programs on the GPU have died of it."""
OPERATOR_RELEASES: Final = 30.0
"""Seconds to wait, before recovering, for the operator to release what the fault took."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: str
    message: str
    error: str
    recovery: float
    """Virtual seconds that it takes to be healthy again."""


GPU_FAULTS: Final[dict[str, _Fault]] = {
    # Names and texts of errors: cudaError_t in the CUDA Runtime API; of Xids: NVIDIA's catalogue.
    "mps": _Fault(
        "MPSFault",
        "The MPS server has failed; its clients are lost and it is being restarted",
        "CUDA error: cudaErrorMpsClientTerminated: MPS client has been terminated by the server",
        2.0,
    ),
    "gpu-lost": _Fault(
        "GPULost",
        "Xid 79: the GPU has fallen off the bus; it is being reset",
        "CUDA error: cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are unavailable",
        10.0,
    ),
    "xid": _Fault(
        "XidError",
        "Xid 48: double-bit ECC error; the GPU is being reset",
        "CUDA error: cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
        5.0,
    ),
}


class _Pacer:
    """Spreads the reports of all GPUs over time."""

    def __init__(self) -> None:
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Return the time at which the next report may be made."""
        self._next = max(now, self._next) + 1 / USAGE_RATE
        return self._next


class Agent:
    """The agent of one GPU.

    Parameters
    ----------
    server
        What its Pod is told.
    device
        The GPU.
    machine
        Where the GPU is.
    agents
        The agents it belongs to.
    """

    def __init__(self, server: Server, device: Device, machine: Machine, agents: "Agents") -> None:
        self.server = server
        self.device = device
        self.machine = machine
        self._agents = agents
        self._changed = asyncio.Event()
        self._faulted = asyncio.Event()
        self._fault: _Fault | None = None
        self._mps_state = "Ready"
        self._reported_jobs = set(agents.status(server.name).get("usage", {}).get("jobs", {}))
        self._reported: Body = {}
        self._log = log.bind(server=server.name, node=machine.name, gpu=device.uuid)
        self._last_report = 0.0
        self._said_farewell = False
        self.task: asyncio.Task[None] | None = None
        device.on_change = self.notice
        self._offer(healthy=True)

    def fault(self, kind: str) -> None:
        """Let the GPU fail; no effect while it has failed already, or without MPS to fail."""
        if kind == "mps" and self.server.mode != "MPS":
            self._log.warning("no MPS to fail", mode=self.server.mode)
        elif self._fault is None:
            self._fault = GPU_FAULTS[kind]
            self._faulted.set()
            self._changed.set()

    def notice(self) -> None:
        """Look again: the GPU's use or its GPUServer has changed."""
        self._changed.set()

    async def serve(self) -> None:
        """Offer and report the GPU until cancelled."""
        await self.machine.publish()
        spec = self.device.spec
        await self._report(
            {
                "node": self.machine.name,
                "uuid": self.device.uuid,
                "product": spec.product,
                "memory": mebibytes(spec.gpu_memory),
                "smCount": spec.sm_count,
                "pcieBandwidth": PCIE_BANDWIDTH,
                "driverVersion": DRIVER_VERSION,
                "conditions": self._conditions(ready="AgentReporting"),
            }
        )
        self._log.info("serving", mode=self.server.mode, max_jobs=self.server.max_jobs)
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._fault is not None:
                await self._suffer(self._fault)
            elif self._usage() != self._reported:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._agents.until_next_report(self._last_report)):
                        await self._faulted.wait()
                if self._fault is None:
                    await self._report({})

    async def farewell(self) -> None:
        """Say, once, that the GPU is no longer served; not when another agent serves by now."""
        silent = self._agents.deleted(self.server.name) or not self.machine.up
        if self._said_farewell or silent or self.server.name in self._agents.by_server:
            return
        self._said_farewell = True
        await self.machine.publish()
        usage = {"memory": "0", "gpuUtilization": 0, "jobs": dict.fromkeys(self._reported_jobs)}
        status: Body = {"usage": usage, "conditions": self._conditions(not_ready="AgentStopped")}
        if self.server.mode == "MPS":
            status["mps"] = {"state": "Stopped", "clients": 0}
        await self._send(status)

    def close(self) -> None:
        """Stop serving: MPS goes, and takes its clients with it."""
        if self.task is not None:
            self.task.cancel()
        self.device.on_change = lambda: None
        self.device.kill_all(GPU_FAULTS["mps"].error)
        if self.machine.up:
            self.machine.offer(self.device.resource, 0)

    async def _suffer(self, fault: _Fault) -> None:
        """Report a fault, lose the clients, wait until they are released, recover."""
        self._log.warning("faulted", reason=fault.reason)
        self._mps_state = "Faulted"
        self._offer(healthy=False)
        conditions = self._conditions(not_ready=fault.reason, faulted=fault)
        await self._report({"conditions": conditions})
        await self.machine.publish()
        await self._until_left(JOBS_LEAVE, ledger=False)
        self.device.kill_all(fault.error)
        await self._until_left(OPERATOR_RELEASES, ledger=True)
        await self._agents.clock.sleep(fault.recovery)
        self.device.kill_all(fault.error)  # those that were bound meanwhile
        await self._agents.clear_fault(self)
        self._fault = None
        self._faulted.clear()
        self._mps_state = "Ready"
        self._offer(healthy=True)
        await self.machine.publish()
        await self._report({"conditions": self._conditions(ready="Recovered")})
        self._log.info("recovered", reason=fault.reason)

    async def _until_left(self, seconds: float, *, ledger: bool) -> None:
        """Wait for the jobs to be gone, from the GPU or also from its ledger; not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.device.tenants or (
                    ledger and self._agents.status(self.server.name).get("allocations")
                ):
                    self._changed.clear()
                    await self._changed.wait()

    def _offer(self, *, healthy: bool) -> None:
        count = self.server.max_jobs
        self.machine.offer(self.device.resource, count, count if healthy else 0)

    def _conditions(
        self, *, ready: str = "", not_ready: str = "", faulted: _Fault | None = None
    ) -> list[Body]:
        message = faulted.message if faulted is not None else ""
        status: Final = "True" if ready else "False"
        new = [Condition(type="Ready", status=status, reason=ready or not_ready, message=message)]
        if faulted is not None:
            new.append(
                Condition(type="Faulted", status="True", reason=faulted.reason, message=message)
            )
        elif ready:
            new.append(
                Condition(
                    type="Faulted",
                    status="False",
                    reason="Recovered" if ready == "Recovered" else "Healthy",
                )
            )
        present = self._agents.status(self.server.name).get("conditions", [])
        return conditions_with(present, new, datetime.now(UTC))

    def _usage(self) -> Body:
        """Measure. A job that has ended is measured once more, for its peak."""
        usage, tenants = self.device.gpu.usage(), self.device.tenants
        jobs = {
            uid: {"memory": "0", "peakMemory": mebibytes(peak)}
            for uid, peak in self.device.peaks.items()
        }
        for key, job in usage.jobs.items():
            memory = {"memory": mebibytes(job.memory), "peakMemory": mebibytes(job.peak)}
            jobs[tenants[key].job_uid] = memory
        measured: Body = {
            "usage": {
                "memory": mebibytes(usage.memory),
                "gpuUtilization": round(usage.utilisation),
                "jobs": jobs,
            }
        }
        if self.server.mode == "MPS":
            clients = sum(tenant.processes for tenant in tenants.values())
            measured["mps"] = {"state": self._mps_state, "clients": clients}
        return measured

    async def _report(self, status: Body) -> None:
        """Write the use, and what else is new."""
        self._reported = self._usage()
        self.device.peaks.clear()
        usage = self._reported["usage"]
        left = self._reported_jobs - usage["jobs"].keys()
        self._reported_jobs = set(usage["jobs"])
        self._last_report = asyncio.get_running_loop().time()
        jobs = usage["jobs"] | dict.fromkeys(left)
        await self._send(status | self._reported | {"usage": usage | {"jobs": jobs}})

    async def _send(self, status: Body) -> None:
        try:
            await self._agents.report(self.server.name, status)
        except ApiError as error:
            gone = error.status == 404
            (self._log.info if gone else self._log.error)("not reported", error=str(error))


class Agents:
    """All agents, and what they know of their GPUServers.

    Parameters
    ----------
    api
        The API server.
    clock
        Virtual time.
    tasks
        Runs the agents.
    """

    def __init__(self, api: API, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self.clock = clock
        self.by_server: dict[str, Agent] = {}
        self._api = api
        self._tasks = tasks
        self._pacer = _Pacer()
        self._servers: dict[str, Body] = {}
        self._asked: dict[str, str] = {}

    def observe_all(self, bodies: Iterable[Body]) -> None:
        """Take in all GPUServers there are."""
        self._servers = {}
        for body in bodies:
            self.observe("MODIFIED", body)

    def observe(self, kind: str, body: Body) -> None:
        """Take in a change of a GPUServer."""
        meta = body["metadata"]
        name = meta["name"]
        if kind == "DELETED":
            self._servers.pop(name, None)
            return
        self._servers[name] = body
        if name in self.by_server:
            self.by_server[name].notice()
        self.observe_fault(f"{GPU_SERVERS}/{name}", meta, [name])

    def observe_fault(self, path: str, meta: Body, servers: Iterable[str]) -> None:
        """Take in the fault that an object's annotation asks for, once, for these GPUServers."""
        kind = (meta.get("annotations") or {}).get(FAULT_ANNOTATION, "")
        if kind != self._asked.get(path, ""):
            self._asked[path] = kind
            for server in servers if kind else ():
                self.inject(kind, server)

    def on(self, machine: Machine) -> list[Agent]:
        """List the agents on a machine."""
        return [agent for agent in self.by_server.values() if agent.machine is machine]

    def inject(self, kind: str, server: str) -> None:
        """Let the GPU of a GPUServer fail."""
        agent = self.by_server.get(server)
        if kind not in GPU_FAULTS:
            log.warning("unknown fault", kind=kind, write=f"one of {', '.join(GPU_FAULTS)}")
        elif agent is None:
            log.warning("fault on a GPUServer without agent", kind=kind, server=server)
        else:
            agent.fault(kind)

    async def clear_fault(self, agent: Agent) -> None:
        """Take off the annotations that asked for its fault."""
        for path in (f"{GPU_SERVERS}/{agent.server.name}", agent.machine.path):
            if self._asked.get(path):
                with suppress(ApiError):  # deleted meanwhile
                    patch = {"metadata": {"annotations": {FAULT_ANNOTATION: None}}}
                    await self._api.patch(path, patch)

    def status(self, name: str) -> Body:
        """Return what a GPUServer's status says, as far as it is known."""
        status: Body = self._servers.get(name, {}).get("status") or {}
        return status

    def deleted(self, name: str) -> bool:
        """Tell whether a GPUServer is gone or going."""
        server = self._servers.get(name)
        return server is None or bool(server["metadata"].get("deletionTimestamp"))

    def uuid_of(self, pod: SimulatedPod) -> str:
        """Return the GPU that a server Pod's GPUServer had last; empty when it had none."""
        uuid: str = self.status(pod.labels.get(LABEL_SERVER, "")).get("uuid", "")
        return uuid

    def start(self, server: Server, device: Device, machine: Machine) -> Agent:
        """Start the agent of a server Pod."""
        agent = self.by_server[server.name] = Agent(server, device, machine, self)
        agent.task = self._tasks.create_task(agent.serve())
        for path in (f"{GPU_SERVERS}/{server.name}", machine.path):
            if self._asked.get(path):
                self.inject(self._asked[path], server.name)
        return agent

    def stop(self, agent: Agent) -> None:
        """Stop an agent; no effect when it has stopped."""
        if self.by_server.get(agent.server.name) is agent:
            del self.by_server[agent.server.name]
            agent.close()

    async def report(self, server: str, status: Body) -> None:
        """Write an agent's part of a GPUServer's status.

        Raises
        ------
        ApiError
            If the GPUServer is gone, or will not have it.
        """
        await self._api.patch(f"{GPU_SERVERS}/{server}/status", {"status": status})

    def until_next_report(self, last: float) -> float:
        """Reserve the next report of use; returns the seconds until then."""
        now = asyncio.get_running_loop().time()
        return max(last + USAGE_INTERVAL, self._pacer.reserve(now)) - now
