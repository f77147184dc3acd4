"""Simulates the scheduler and the kubelets of all machines; Pods run in virtual time."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from partita.constants import GPU_RESOURCE
from partita.kube.client import PODS
from partita_policies.types import Sharing
from partita_testcluster.nodes.api import ApiError
from partita_testcluster.nodes.container_logs import ContainerLog, PodLogs
from partita_testcluster.nodes.gpu import GIB, Ended
from partita_testcluster.nodes.node import Machine, SimulatedDevice
from partita_testcluster.nodes.scheduler import Wants, place, why_not
from partita_testcluster.nodes.simulated_agent import SimulatedAgent, SimulatedCluster
from partita_testcluster.nodes.simulated_pods import (
    GATED,
    BadPodError,
    Exit,
    PodTask,
    SimulatedPod,
    owner_of,
    parse_pod,
    pod_status,
    unschedulable,
    waiting_status,
)
from partita_testcluster.nodes.simulated_profiles import SimulatedProfiles

__all__ = ["Kubelets"]

log = structlog.get_logger(__name__)

_LOST: Final = Exit(137, "The node was restarted", "ContainerStatusUnknown")
"""The status that kubelet writes after its machine has restarted."""

Body = dict[str, Any]


class _NoDeviceError(Exception):
    """A Pod is bound to a machine without the requested devices."""


@dataclass(eq=False)
class _PodRun:
    """A Pod on a machine, and the asyncio task that runs it."""

    pod: SimulatedPod
    machine: Machine
    devices: list[SimulatedDevice] = field(default_factory=list)
    agent: SimulatedAgent | None = None
    holds: bool = True
    leaving: bool = False
    task: asyncio.Task[None] | None = None
    log: ContainerLog = field(default_factory=ContainerLog)
    ended: Ended | None = None


class Kubelets:
    """The scheduler, and the kubelets of all machines.

    Parameters
    ----------
    cluster
        The state that all parts of the simulation share.
    logs
        The logs of the Pods; kept up to date.
    """

    def __init__(self, cluster: SimulatedCluster, logs: PodLogs) -> None:
        self._cluster = cluster
        self._logs = logs
        self._profiles = SimulatedProfiles(cluster.api)
        self._runs: dict[str, _PodRun] = {}
        self._waiting: dict[str, SimulatedPod] = {}

    def observe_server(self, body: Body, *, deleted: bool = False) -> None:
        """Handle a change of a GPUServer."""
        name = body["metadata"]["name"]
        self._cluster.servers[name] = body
        if deleted:
            del self._cluster.servers[name]
        if name in self._cluster.agents:
            self._cluster.agents[name].observe()

    def observe_node(self, body: Body, *, deleted: bool = False) -> None:
        """Handle a change of a Node; everything on a deleted Node is lost."""
        machine = self._cluster.machines.get(body["metadata"]["name"])
        if machine is None:
            return
        if deleted:
            self._lose(machine)
        elif not machine.up:  # the Node was created again
            log.info("node back", node=machine.spec.name)
            machine.up = True
            self._cluster.tasks.create_task(self._start_again(machine))
        else:
            machine.observe(body)
            self._retry()

    def order(self, body: Body) -> int:
        """Return the sort key of a Pod.

        Job Pods come last, since they need the GPUs of server Pods. Server Pods that had a GPU
        come first, so that they get the same GPU again.
        """
        server = owner_of(body, "GPUServer").get("name", "")
        return 2 - bool(server) - bool(self._cluster.uuid(server))

    def observe_pod(self, body: Body, *, deleted: bool = False) -> None:
        """Handle a change of a Pod."""
        meta = body["metadata"]
        uid = meta["uid"]
        self._waiting.pop(uid, None)
        if deleted:
            self._forget(uid)
            self._logs.pop((meta["namespace"], meta["name"]), None)
            return
        pod, run = parse_pod(body), self._runs.get(uid)
        if pod.ended and run is not None:
            self._forget(pod.uid)  # ended by a write of this kubelet or of another client
            if pod.deleted and not run.leaving:
                self._consider(pod)  # its end and its deletion arrived together
        elif run is None:
            self._consider(pod)
        else:
            run.pod = pod
            if pod.deleted and not run.leaving:
                run.leaving = True
                self._drop(run)
                run.task = self._cluster.tasks.create_task(self._remove(pod, run.agent))

    def close(self) -> None:
        """Stop the simulation; the objects in the API stay as they are."""
        self._waiting.clear()
        for machine in self._cluster.machines.values():
            for device in machine.devices:
                device.stop_all("")

    def _consider(self, pod: SimulatedPod) -> None:
        """Schedule, run or remove a Pod, if the simulation is responsible for it."""
        machine = self._cluster.machines.get(pod.node)
        if pod.deleted:
            if machine is not None and machine.up:
                self._cluster.tasks.create_task(self._remove(pod))
        elif pod.ended or not pod.wants.devices:
            pass
        elif machine is not None and machine.up:
            self._admit(pod, machine)
        elif not pod.node and pod.for_default_scheduler:
            self._waiting[pod.uid] = pod
            self._place(pod)

    # The scheduler.

    def _place(self, pod: SimulatedPod) -> bool:
        nodes = [machine.capacity for machine in self._cluster.machines.values() if machine.up]
        node = None if pod.gated else place(pod.wants, nodes)
        if node is not None:
            del self._waiting[pod.uid]
            self._admit(pod, self._cluster.machines[node.name])
        elif (why := GATED if pod.gated else why_not(pod.wants, nodes)) != pod.unschedulable:
            pod.unschedulable = why
            self._cluster.tasks.create_task(self._write_status(pod, unschedulable(pod, why)))
        return node is not None

    def _retry(self) -> None:
        """Try to place the waiting Pods again after resources were released."""
        refused: list[Wants] = []
        for pod in list(self._waiting.values()):
            if pod.wants not in refused and not self._place(pod):
                refused.append(pod.wants)

    # Running Pods.

    def _admit(self, pod: SimulatedPod, machine: Machine) -> None:
        machine.capacity.used.update(pod.wants.resources)
        run = self._runs[pod.uid] = _PodRun(pod, machine)
        run.task = self._cluster.tasks.create_task(self._run_pod(run))

    async def _run_pod(self, run: _PodRun) -> None:
        """Bind and run a Pod, and write its status."""
        pod = run.pod
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": run.machine.spec.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        if not pod.node and not await self._call("POST", f"{pod.path}/binding", binding):
            await asyncio.sleep(1)  # deleted, or bound by another: the watch reports it
            self._free(run)
            del self._runs[pod.uid]
            self._consider(run.pod)
            return
        started = run.pod.started or datetime.now(UTC)
        logs = {container["name"]: ContainerLog() for container in pod.containers}
        run.log = next(iter(logs.values()))
        self._logs[pod.namespace, pod.name] = logs
        try:
            end = await self._execute(run, started)
        finally:
            for log_of_container in logs.values():
                log_of_container.close()
        self._free(run)
        if end.code == 0 and run.ended is not None and not pod.started:
            self._cluster.tasks.create_task(self._keep_profile(run, run.ended))
        await self._write(run.pod, started, end)

    async def _keep_profile(self, run: _PodRun, ended: Ended) -> None:
        """Record the use of a run in the profile, with the environment of the GPU's agent."""
        pod = run.pod
        for agent in self._cluster.agents.values():
            if agent.device is run.devices[0] and pod.application:
                where = agent.environment
                await self._profiles.keep(pod.namespace, pod.application, ended, where)

    async def _execute(self, run: _PodRun, started: datetime) -> Exit:
        pod, machine = run.pod, run.machine
        if pod.started and machine.rebooted and not pod.server_name:
            return _LOST
        ends: list[asyncio.Future[Ended]] = []
        finish = _LOST
        try:
            if pod.server_name:
                server = pod.server()
                self._allocate(run, server.sharing, self._cluster.uuid(server.name))
                run.agent = SimulatedAgent(server, run.devices[0], machine, self._cluster)
                run.log.write(f"simulated agent: serving {run.devices[0].uuid}")
            elif pod.not_starting:
                self._allocate(run)
                run.log.waiting = pod.not_starting
                await self._write_status(pod, waiting_status(pod))
                await asyncio.get_running_loop().create_future()  # until it is deleted
            elif pod.probed_server:
                self._allocate(run)
                await self._write(pod, started)
                self._probe(run)
                await asyncio.get_running_loop().create_future()  # until it is deleted
            else:
                self._allocate(run)
                task = pod.task(run.devices[0].gpu.sharing, len(run.devices))
                finish = task.exit
                ends = self._start(run, task, started)
        except BadPodError as error:
            run.log.write(str(error))
            return Exit(1, str(error))
        except _NoDeviceError as error:
            return Exit(1, str(error), "UnexpectedAdmissionError", admitted=False)
        if not pod.started:
            await self._write(pod, started)
        if run.agent is not None:
            await run.agent.serve()
        for end in asyncio.as_completed(ends):
            ended = await end
            if ended.error:
                run.log.write(ended.error)
                return Exit(1, ended.error)
            run.ended = ended
        run.log.write(finish.message or f"exit code {finish.code}")
        return finish

    def _probe(self, run: _PodRun) -> None:
        """Let the agent of the GPU see that a probe Pod runs."""
        agent = self._cluster.agents.get(run.pod.probed_server)
        if agent is not None and agent.device in run.devices:
            agent.probe()

    def _start(self, run: _PodRun, task: PodTask, started: datetime) -> list[asyncio.Future[Ended]]:
        """Start a job's work on its GPUs."""
        pod, work = run.pod, task.work
        # The speed before a restart of this program is unknown: assume full speed.
        done = (datetime.now(UTC) - started).total_seconds() if pod.started else 0.0
        done = max(0.0, done * self._cluster.clock.speed)
        run.log.write(f"simulated: {pod.program}")
        limit = work.memory_limit
        allowed = "" if limit is None else f", of which it may use {limit / GIB:.2f} GiB"
        for device in run.devices:
            run.log.write(f"{device.uuid} has {device.gpu.memory / GIB:.2f} GiB of memory{allowed}")
        return [
            device.run(work, pod.job_uid, task.processes, done, None if index else run.log)
            for index, device in enumerate(run.devices)
        ]

    def _allocate(self, run: _PodRun, sharing: Sharing = Sharing.EXCLUSIVE, uuid: str = "") -> None:
        """Allocate slices and whole GPUs to a Pod; prefer the GPU with this UUID."""
        machine = run.machine
        for resource, count in run.pod.wants.devices.items():
            needed = 1
            if resource == GPU_RESOURCE:
                needed = count
                free = [device for device in machine.devices if not device.owner]
                devices = sorted(free, key=lambda device: device.uuid != uuid)[:count]
                for device in devices:
                    device.claim(run.pod.uid, sharing)
            elif machine.capacity.capacity.get(resource):
                devices = [device for device in machine.devices if device.resource == resource]
            else:
                devices = []
            run.devices += devices
            if len(devices) < needed:
                raise _NoDeviceError(f"no healthy devices present; cannot allocate {resource}")

    async def _write_status(self, pod: SimulatedPod, patch: Body) -> None:
        await self._call("PATCH", f"{pod.path}/status", patch)

    async def _write(self, pod: SimulatedPod, started: datetime, end: Exit | None = None) -> None:
        await self._write_status(pod, pod_status(pod, started, end))

    async def _call(self, method: str, path: str, body: Body) -> bool:
        """Call the API about a Pod; return whether the call was accepted.

        A rejected call usually means that the Pod was deleted, which the watch reports.
        """
        try:
            await self._cluster.api.call(method, path, body)
        except ApiError as error:
            log.info("refused", method=method, path=path, error=str(error))
            return False
        return True

    def _forget(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is not None and not run.leaving:
            self._drop(run)
            if run.agent is not None:
                self._cluster.tasks.create_task(run.agent.stop_reporting())

    def _drop(self, run: _PodRun) -> None:
        if run.task is not None:
            run.task.cancel()
        self._free(run)

    def _free(self, run: _PodRun) -> None:
        """Release the resources of a Pod."""
        if not run.holds:
            return
        run.holds = False
        if run.agent is not None:
            run.agent.close()
        for device in run.devices:
            if device.owner == run.pod.uid:
                device.stop_all("")
                device.claim("", Sharing.EXCLUSIVE)
            else:
                device.stop(run.pod.uid)
        run.machine.capacity.used.subtract(run.pod.wants.resources)
        self._retry()

    async def _remove(self, pod: SimulatedPod, agent: SimulatedAgent | None = None) -> None:
        """Finish the deletion of a Pod."""
        if agent is not None:
            await agent.stop_reporting()
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        await self._call("DELETE", pod.path, options)

    # Lost and restarted machines.

    def _lose(self, machine: Machine) -> None:
        """Drop the Pods of a lost machine, without writing to the API."""
        log.warning("node gone", node=machine.spec.name)
        machine.up = False  # first, so that the machine writes nothing more
        machine.rebooted = True
        for uid, run in list(self._runs.items()):
            if run.machine is machine:
                del self._runs[uid]
                self._drop(run)
                if not run.pod.node:
                    self._waiting[uid] = run.pod

    async def _start_again(self, machine: Machine) -> None:
        await machine.register()
        for pod in sorted(
            (await self._cluster.api.call("GET", PODS.path()))["items"], key=self.order
        ):
            if pod["spec"].get("nodeName") == machine.spec.name:
                self.observe_pod(pod)
