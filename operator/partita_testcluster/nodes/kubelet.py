"""Simulates the kubelets of all machines; Pods run in virtual time."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from partita.kube.client import PODS
from partita_policies.types import Sharing
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.container_logs import ContainerLog, PodLogs
from partita_testcluster.nodes.gpu import Ended
from partita_testcluster.nodes.node import Machine, SimulatedDevice
from partita_testcluster.nodes.pod_run import PodRun, PodRunner
from partita_testcluster.nodes.pod_scheduler import PodScheduler
from partita_testcluster.nodes.pod_status import Restarts, pod_status
from partita_testcluster.nodes.simulated_pods import Exit, SimulatedPod, owner_of, parse_pod
from partita_testcluster.nodes.simulated_profiles import SimulatedProfiles

__all__ = ["Kubelets"]

log = structlog.get_logger(__name__)

_TERMINATED: Final = Exit(128 + 15, "")
"""The end of a program that SIGTERM has ended, by the convention of shells."""

Body = dict[str, Any]


class Kubelets:
    """The kubelets of all machines, and the scheduler that gives Pods to them.

    Parameters
    ----------
    cluster
        The state that all parts of the simulation share.
    logs
        The logs of the Pods; kept up to date.
    schedules
        Whether to bind Pods to machines, or leave that to another scheduler.
    """

    def __init__(self, cluster: SimulatedCluster, logs: PodLogs, *, schedules: bool = True) -> None:
        self._cluster = cluster
        self._logs = logs
        self._schedules = schedules
        self._profiles = SimulatedProfiles(cluster.api)
        self._runs: dict[str, PodRun] = {}
        self._scheduler = PodScheduler(cluster, self._admit)
        self._runner = PodRunner(cluster)

    def observe_server(self, body: Body, *, deleted: bool = False) -> None:
        """Handle a change of a GPUServer."""
        name = body["metadata"]["name"]
        self._cluster.servers[name] = body
        if deleted:
            del self._cluster.servers[name]
        if name in self._cluster.agents:
            self._cluster.agents[name].observe()
        self._cluster.changes.notify()

    def observe_claim(self, body: Body, *, deleted: bool = False) -> None:
        """Handle a change of a ResourceClaim."""
        for pod in self._cluster.claims.observe(body, deleted=deleted):
            if pod.uid not in self._runs:
                self._consider(pod)
        self._cluster.changes.notify()

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
            self._scheduler.retry()

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
        self._scheduler.remove(uid)
        if deleted:
            self._forget(uid)
            self._cluster.claims.forget_pod(uid)
            self._logs.pop((meta["namespace"], meta["name"]), None)
            return
        pod, run = parse_pod(body), self._runs.get(uid)
        self._cluster.claims.observe_pod(pod)
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
                run.task = self._cluster.tasks.create_task(self._remove(pod, run))

    def _consider(self, pod: SimulatedPod) -> None:
        """Schedule, run or remove a Pod, if the simulation is responsible for it."""
        machine = self._cluster.machines.get(pod.node)
        if pod.deleted:
            if machine is not None and machine.up:
                self._cluster.tasks.create_task(self._remove(pod))
        elif pod.ended or not self._is_simulated(pod):
            pass
        elif machine is not None and machine.up:
            self._admit(pod, machine)
        elif self._schedules and not pod.node and pod.for_default_scheduler:
            self._scheduler.add(pod)

    def _is_simulated(self, pod: SimulatedPod) -> bool:
        """Return whether a Pod requests GPUs, or has a claim of Partita."""
        return bool(pod.wants.devices) or any(c.ours for c in self._cluster.claims.of(pod))

    def _admit(self, pod: SimulatedPod, machine: Machine) -> None:
        machine.capacity.used.update(pod.wants.resources)
        run = self._runs[pod.uid] = PodRun(pod, machine, restarts=Restarts(pod.restarts))
        run.task = self._cluster.tasks.create_task(self._run_pod(run))

    async def _run_pod(self, run: PodRun) -> None:
        """Bind and run a Pod, and write its end."""
        pod = run.pod
        if not pod.node and not await self._scheduler.bind(pod, run.machine):
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
            end = await self._runner.run(run, started)
        finally:
            for log_of_container in logs.values():
                log_of_container.close()
        gpus = run.gpus
        self._free(run)
        if end.code == 0 and run.ended is not None and not pod.started:
            self._cluster.tasks.create_task(self._keep_profile(run, gpus[0], run.ended))
        patch = pod_status(run.pod, started, end, restarts=run.restarts)
        await self._cluster.write("PATCH", f"{pod.path}/status", patch)

    async def _keep_profile(self, run: PodRun, gpu: SimulatedDevice, ended: Ended) -> None:
        """Record the use of a run in the profile, with the environment of the GPU's agent."""
        for agent in tuple(self._cluster.agents.values()):  # others come and go meanwhile
            if agent.device is gpu and run.application:
                where = agent.environment
                await self._profiles.keep(
                    run.pod.namespace, run.application, ended, where, pod_uid=run.pod.uid
                )

    def _forget(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is not None and not run.leaving:
            self._drop(run)
            if run.agent is not None:
                self._cluster.tasks.create_task(run.agent.stop_reporting())

    def _drop(self, run: PodRun) -> None:
        if run.task is not None:
            run.task.cancel()
        self._free(run)

    def _free(self, run: PodRun) -> None:
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
        for part in run.slices:
            part.gpu.stop(run.pod.uid)
            agent = self._cluster.agents.get(part.device.server)
            if agent is not None:
                agent.unprepare(part.device.claim)
        run.machine.capacity.used.subtract(run.pod.wants.resources)
        self._scheduler.retry()

    async def _remove(self, pod: SimulatedPod, run: PodRun | None = None) -> None:
        """Finish the deletion of a Pod.

        For a Pod of a Job, whose controller needs it, it first writes how the containers ended;
        kubelet does that for all Pods. It can unprepare claims only as long as an agent runs on the
        node.
        """
        if run is not None and run.agent is not None:
            await run.agent.stop_reporting()
        elif run is not None and pod.started is not None and owner_of(pod.body, "Job"):
            patch = pod_status(pod, pod.started, _TERMINATED, restarts=run.restarts)
            await self._cluster.write("PATCH", f"{pod.path}/status", patch)
        while run is not None and run.slices and not self._cluster.agents_on(pod.node):
            await self._cluster.changes.wait()
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        await self._cluster.write("DELETE", pod.path, options)

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
                    self._scheduler.defer(run.pod)

    async def _start_again(self, machine: Machine) -> None:
        await machine.register()
        for pod in sorted(
            (await self._cluster.api.call("GET", PODS.path()))["items"], key=self.order
        ):
            if pod["spec"].get("nodeName") == machine.spec.name:
                self.observe_pod(pod)
