"""Runs Pods on simulated machines: their GPUs and claims, their programs, and restarts."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from partita.agent.errors import PrepareError
from partita.constants import DRIVER
from partita.models.profile import application_hash
from partita_policies.types import Sharing
from partita_testcluster.nodes.claims import SimulatedClaim
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.container_logs import ContainerLog
from partita_testcluster.nodes.gpu import GIB, Ended
from partita_testcluster.nodes.node import Machine, SimulatedDevice
from partita_testcluster.nodes.pod_status import (
    Restarts,
    back_off_status,
    pod_status,
    waiting_status,
)
from partita_testcluster.nodes.simulated_agent import SimulatedAgent
from partita_testcluster.nodes.simulated_claims import PreparedSlice
from partita_testcluster.nodes.simulated_pods import BadPodError, Exit, SimulatedPod

__all__ = ["PodRun", "PodRunner"]

log = structlog.get_logger(__name__)

_LOST: Final = Exit(137, "The node was restarted", "ContainerStatusUnknown")
"""The status that kubelet writes after its machine has restarted."""
_BACK_OFF: Final = 10.0
_LONGEST_BACK_OFF: Final = 300.0
_BACK_OFF_RESET: Final = 600.0
"""Seconds before the second restart of a container in a row, doubled after each; the most; and how
long a container must run until it counts as the first again
(https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy)."""

Body = dict[str, Any]


class _NoDeviceError(Exception):
    """A Pod is bound to a machine without the requested devices."""


@dataclass(eq=False)
class PodRun:
    """A Pod on a machine, and the asyncio task that runs it."""

    pod: SimulatedPod
    machine: Machine
    devices: list[SimulatedDevice] = field(default_factory=list)
    """GPUs that it has by resources."""
    slices: list[PreparedSlice] = field(default_factory=list)
    """What it has by claims."""
    agent: SimulatedAgent | None = None
    holds: bool = True
    leaving: bool = False
    task: asyncio.Task[None] | None = None
    log: ContainerLog = field(default_factory=ContainerLog)
    restarts: Restarts = field(default_factory=Restarts)
    """The restarts of its containers."""
    ended: Ended | None = None

    @property
    def gpus(self) -> list[SimulatedDevice]:
        """The GPUs that it uses."""
        return [*self.devices, *(part.gpu for part in self.slices)]

    @property
    def application(self) -> str:
        """Application under which its history is kept; empty if none is kept."""
        claimed = (part.entry.application for part in self.slices)
        return next(filter(None, claimed), self.pod.application)


class PodRunner:
    """Runs the containers of Pods.

    Parameters
    ----------
    cluster
        The state that all parts of the simulation share.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def run(self, run: PodRun, started: datetime) -> Exit:
        """Run a Pod that is bound to its machine until it ends, and write its status until then.

        Parameters
        ----------
        started
            When the Pod was started.
        """
        pod, again = run.pod, run.pod.restart_policy == "Always"
        if pod.started and run.machine.rebooted and not (pod.server_name or again):
            return _LOST
        try:
            if pod.server_name:
                await self._serve(run, started)
            self._allocate(run)
            await self._prepare(run)
            if pod.not_starting:
                run.log.waiting = pod.not_starting
                reason = waiting_status(pod, pod.not_starting, "as its annotation asks")
                await self._write(pod, reason)
                await asyncio.get_running_loop().create_future()  # until it is deleted
            if pod.probed_server:
                await self._write(pod, pod_status(pod, started))
                self._probe(run)
                await asyncio.get_running_loop().create_future()  # until it is deleted
            return await self._run_containers(run, started)
        except BadPodError as error:
            run.log.write(str(error))
            return Exit(1, str(error))
        except _NoDeviceError as error:
            return Exit(1, str(error), "UnexpectedAdmissionError", admitted=False)

    async def _serve(self, run: PodRun, started: datetime) -> None:
        """Run a server Pod until it is deleted."""
        pod, server = run.pod, run.pod.server()
        self._allocate(run, server.sharing, self._cluster.uuid(server.name))
        run.agent = SimulatedAgent(server, run.devices[0], run.machine, self._cluster)
        run.log.write(f"simulated agent: serving {run.devices[0].uuid}")
        if not pod.started:
            await self._write(pod, pod_status(pod, started))
        await run.agent.serve()

    def _probe(self, run: PodRun) -> None:
        """Let the agent of the GPU see that a probe Pod runs."""
        agent = self._cluster.agents.get(run.pod.probed_server)
        if agent is not None and agent.device in run.gpus:
            agent.probe()

    # Programs.

    async def _run_containers(self, run: PodRun, started: datetime) -> Exit:
        """Run the program of a Pod, again and again if its restart policy says so."""
        goes_on, failures = run.pod.started is not None, 0
        # The speed before a restart of this simulation is unknown: assume full speed.
        done = self._virtual_seconds(started) if goes_on else 0.0
        while True:
            begun = datetime.now(UTC)
            end = self._start(run, done)
            if not goes_on:
                await self._write(run.pod, pod_status(run.pod, started, restarts=run.restarts))
            how = await self._end(run, *end)
            policy = run.pod.restart_policy
            if policy == "Never" or (policy == "OnFailure" and not how.code):
                return how
            failures = 1 if self._virtual_seconds(begun) >= _BACK_OFF_RESET else failures + 1
            ended = replace(run.restarts, end=how, begun=begun)
            await self._write(run.pod, back_off_status(run.pod, started, ended))
            await self._cluster.clock.sleep(_back_off(failures))
            goes_on, done, run.restarts = False, 0.0, Restarts(run.restarts.count + 1, how, begun)
            self._renew(run)

    def _start(self, run: PodRun, done: float) -> tuple[Exit, list[asyncio.Future[Ended]]]:
        """Start a program with `done` seconds of its work done.

        Returns
        -------
        Exit
            How it will end if it does not fail before.
        list of futures
            Its end on each GPU.
        """
        pod, gpus = run.pod, run.gpus
        task = pod.task(
            gpus[0].gpu.sharing,
            len(gpus),
            allocated=sum(part.entry.memory for part in run.slices) if run.slices else None,
            variables={k: v for part in run.slices for k, v in part.device.variables.items()},
        )
        run.log.write(f"simulated: {pod.program}")
        limit = task.work.memory_limit
        allowed = "" if limit is None else f", of which it may use {limit / GIB:.2f} GiB"
        for device in gpus:
            run.log.write(f"{device.uuid} has {device.gpu.memory / GIB:.2f} GiB of memory{allowed}")
        keys = [pod.job_uid] * len(run.devices) + [part.entry.uid for part in run.slices]
        named = run.application and application_hash(pod.namespace, run.application)
        work = replace(task.work, application=named)
        return task.exit, [
            device.run(work, key, task.processes, done, None if index else run.log)
            for index, (device, key) in enumerate(zip(gpus, keys, strict=True))
        ]

    async def _end(self, run: PodRun, finish: Exit, ends: list[asyncio.Future[Ended]]) -> Exit:
        """Wait until a program has ended on all its GPUs, or has failed on one."""
        for end in asyncio.as_completed(ends):
            ended = await end
            if ended.error:
                run.log.write(ended.error)
                for device in run.gpus:
                    device.stop(run.pod.uid)
                return Exit(1, ended.error)
            run.ended = ended
        run.log.write(finish.message or f"exit code {finish.code}")
        return finish

    def _virtual_seconds(self, since: datetime) -> float:
        seconds = (datetime.now(UTC) - since).total_seconds()
        return max(0.0, seconds * self._cluster.clock.speed)

    # GPUs and claims.

    def _allocate(self, run: PodRun, sharing: Sharing = Sharing.EXCLUSIVE, uuid: str = "") -> None:
        """Allocate whole GPUs to a Pod; prefer the GPU with this UUID."""
        free = [device for device in run.machine.devices if not device.owner]
        for resource, count in run.pod.wants.devices.items():
            devices = sorted(free, key=lambda device: device.uuid != uuid)[:count]
            for device in devices:
                device.claim(run.pod.uid, sharing)
            run.devices += devices
            if len(devices) < count:
                raise _NoDeviceError(f"no healthy devices present; cannot allocate {resource}")

    async def _prepare(self, run: PodRun) -> None:
        """Prepare the claims of a Pod; as kubelet does, try until that succeeds."""
        said = ""
        while run.pod.claim_names:
            try:
                run.slices = self._slices(run)
            except PrepareError as error:
                if str(error) != said:
                    said = str(error)
                    await self._refuse(run, said)
                else:
                    await self._cluster.changes.wait()
            else:
                return

    def _renew(self, run: PodRun) -> None:
        """Prepare claims anew before a container starts again: the ledger may have changed.

        A container whose GPU takes no containers fails as it starts.
        """
        try:
            run.slices = self._slices(run)
        except PrepareError as error:
            log.info("claims not renewed", pod=run.pod.name, error=str(error))

    def _slices(self, run: PodRun) -> list[PreparedSlice]:
        if not self._cluster.claims.complete(run.pod):
            raise PrepareError("a ResourceClaim of the Pod does not exist")
        claims = [claim for claim in self._cluster.claims.of(run.pod) if claim.ours]
        return [part for claim in claims for part in self._slices_of(claim, run)]

    def _slices_of(self, claim: SimulatedClaim, run: PodRun) -> list[PreparedSlice]:
        """Prepare one claim, as kubelet does (k8s.io/kubernetes v1.36.3, pkg/kubelet/cm/dra)."""
        pod, node = run.pod, run.machine.spec.name
        if not claim.reserved_for_pod(pod.uid):
            raise PrepareError(
                f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {claim.name} "
                f"({claim.uid})"
            )
        if not self._cluster.agents_on(node):
            raise PrepareError(f"DRA driver {DRIVER} is not registered")
        try:
            agents = [self._agent(server, node) for server in claim.servers]
            return [agent.prepare(claim, pod) for agent in agents]
        except PrepareError as error:
            name = f"ResourceClaim {claim.namespace}/{claim.name}"
            raise PrepareError(f"{name}: {error}") from None

    def _agent(self, server: str, node: str) -> SimulatedAgent:
        """Return the agent of a GPU that is allocated to a claim."""
        agent = self._cluster.agents.get(server)
        if agent is None or agent.node != node:
            raise PrepareError(
                f"it has a GPU of GPUServer {server}, whose agent does not run on this node"
            )
        return agent

    async def _refuse(self, run: PodRun, why: str) -> None:
        """Write why the containers of a Pod do not start."""
        pod = run.pod
        log.info("claims not prepared", pod=pod.name, why=why)
        if not pod.started:
            await self._write(pod, waiting_status(pod, "ContainerCreating"))
        now = datetime.now(UTC)
        subject = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name}.{int(now.timestamp() * 1e6):x}"},
            "involvedObject": {**subject, "namespace": pod.namespace},
            "reason": "FailedPrepareDynamicResources",
            "message": f"Failed to prepare dynamic resources: {why}",
            "type": "Warning",
            "source": {"component": "kubelet", "host": run.machine.spec.name},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        await self._cluster.write("POST", f"/api/v1/namespaces/{pod.namespace}/events", event)

    async def _write(self, pod: SimulatedPod, patch: Body) -> None:
        await self._cluster.write("PATCH", f"{pod.path}/status", patch)


def _back_off(failures: int) -> float:
    """Return the seconds before a container that ended so often in a row starts again."""
    if failures < 2:
        return 0.0
    return float(min(_LONGEST_BACK_OFF, _BACK_OFF * 2 ** (failures - 2)))
