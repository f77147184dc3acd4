"""Runs simulated nodes against an API server: wires scheduler, kubelet, agents and faults."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_kube_config

from partita.embedded.nodes.agent import FAULT_ANNOTATION, GPU_SERVERS, Agents
from partita.embedded.nodes.api import API, ApiError
from partita.embedded.nodes.faults import (
    NODE_GONE,
    FaultAt,
    RandomFaults,
    inject_faults,
    parse_faults,
)
from partita.embedded.nodes.kubelet import PODS, Kubelet
from partita.embedded.nodes.node import NODES, Clock, Machine, NodeSpec
from partita.embedded.nodes.scheduler import Cluster
from partita.models.base import format_time

__all__ = ["run_nodes"]

log = structlog.get_logger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
LEASE_INTERVAL: Final = 10.0
"""Seconds between a kubelet's renewals (its `nodeLeaseDurationSeconds`, 40, divided by 4)."""

Body = dict[str, Any]


async def run_nodes(
    cluster: str | os.PathLike[str] | Configuration,
    *,
    nodes: Sequence[NodeSpec],
    stop: asyncio.Event,
    speed: float = 1.0,
    faults: str = "",
    started: asyncio.Event | None = None,
) -> None:
    """Simulate GPU nodes until told to stop.

    What they were doing before goes on: Pods that run keep running, server Pods keep their GPUs.
    On stopping nothing is taken back, as when kubelets are stopped.

    Parameters
    ----------
    cluster
        Path of a kubeconfig, or the official client's configuration.
    nodes
        The machines.
    stop
        Ends the simulation.
    speed
        Virtual seconds in a second: at 10, a job of 20 s runs for 2 s.
    faults
        What is to fail and when (virtual time), as in `parse_faults`.
    started
        Set when the nodes are registered and Pods are looked after.

    Raises
    ------
    ValueError
        If `speed` or `faults` make no sense.
    ApiError
        If the API server refuses what nodes must do.
    """
    if speed <= 0:
        raise ValueError(f"speed {speed} makes no sense: write a number above 0, such as 10")
    plan = parse_faults(faults)
    if not isinstance(cluster, Configuration):
        path, cluster = os.fspath(cluster), Configuration()
        await load_kube_config(path, client_configuration=cluster, persist_config=False)  # type: ignore[no-untyped-call]
    api = API(cluster)
    stopped = asyncio.create_task(stop.wait())
    work = asyncio.create_task(_Simulation(api, nodes, Clock(speed)).run(plan, started))
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    except ExceptionGroup as group:
        refused = group.subgroup(ApiError)
        raise (refused.exceptions[0] if refused else group) from None
    finally:
        for task in (work, stopped):
            task.cancel()
        await asyncio.wait({work, stopped})
        await api.close()


class _Simulation:
    """All simulated nodes, and what can happen to them."""

    def __init__(self, api: API, nodes: Sequence[NodeSpec], clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._tasks = asyncio.TaskGroup()
        self._cluster = Cluster()
        self._machines = {spec.name: Machine(spec, api, self._cluster, clock) for spec in nodes}
        self._agents = Agents(api, clock, self._tasks)
        self._kubelet = Kubelet(
            api=api,
            cluster=self._cluster,
            machines=self._machines,
            agents=self._agents,
            clock=clock,
            tasks=self._tasks,
        )

    async def run(
        self, faults: Sequence[FaultAt | RandomFaults], started: asyncio.Event | None
    ) -> None:
        """Take over what there is, in the order in which it depends on each other; then serve."""
        async with self._tasks:
            await self._follow(GPU_SERVERS, self._agents.observe_all, self._agents.observe)
            machines = self._machines.values()
            for machine in machines:
                machine.power_on()
            await asyncio.gather(*(machine.register() for machine in machines))
            await self._follow(NODES, self._observe_nodes, self._observe_node)
            await self._follow(PODS, self._kubelet.observe_all, self._kubelet.observe)
            await asyncio.gather(*(machine.publish() for machine in machines))
            self._tasks.create_task(self._renew_leases())
            self._tasks.create_task(inject_faults(faults, self))
            log.info("nodes ready", nodes=len(machines), speed=self._clock.speed)
            if started is not None:
                started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._kubelet.close()

    async def _follow(
        self,
        path: str,
        on_list: Callable[[list[Body]], None],
        on_event: Callable[[str, Body], None],
    ) -> None:
        """Follow a collection from now on; returns when it was listed once."""
        listed = asyncio.Event()

        def take(items: list[Body]) -> None:
            on_list(items)
            listed.set()

        self._tasks.create_task(self._api.follow(path, take, on_event))
        await listed.wait()

    def _observe_nodes(self, nodes: list[Body]) -> None:
        present = {node["metadata"]["uid"]: node for node in nodes}
        for machine in self._machines.values():
            if machine.up and machine.uid not in present:
                self._kubelet.lose(machine)
        for node in nodes:
            self._observe_node("MODIFIED", node)

    def _observe_node(self, kind: str, node: Body) -> None:
        meta = node["metadata"]
        machine = self._machines.get(meta["name"])
        if machine is None:
            return
        if not machine.up:
            if kind == "ADDED":  # somebody wants it back
                self._tasks.create_task(self.node_back(machine.name))
        elif kind == "DELETED":
            if meta["uid"] == machine.uid:
                log.warning("node deleted", node=machine.name)
                self._kubelet.lose(machine)
        else:
            machine.observe(node)
            self._kubelet.binder.retry_all()
            if (meta.get("annotations") or {}).get(FAULT_ANNOTATION) == NODE_GONE:
                self._tasks.create_task(self.node_gone(machine.name))
            else:
                here = [a.server.name for a in self._agents.on(machine)]
                self._agents.observe_fault(machine.path, meta, here)

    def servers(self) -> Sequence[str]:
        """Name the GPUServers that are served."""
        return list(self._agents.by_server)

    def gpu_fault(self, kind: str, server: str) -> None:
        """Let the GPU of a GPUServer fail."""
        self._agents.inject(kind, server)

    async def node_gone(self, node: str) -> None:
        """Switch a node off, and delete its Node as a cloud's controller does."""
        machine = self._machines.get(node)
        if machine is None or not machine.up:
            log.warning("no such node is up", node=node)
            return
        log.warning("node gone", node=node)
        self._kubelet.lose(machine)
        await self._api.delete(machine.path)

    async def node_back(self, node: str) -> None:
        """Switch a node on; what ran on it is lost, its server Pods start again."""
        machine = self._machines.get(node)
        if machine is None or machine.up:
            log.warning("no such node is off", node=node)
            return
        log.info("node back", node=node)
        machine.power_on()
        await machine.register()
        await machine.publish()
        for pod in (await self._api.get(PODS))["items"]:
            if pod["spec"].get("nodeName") == node:
                self._kubelet.observe("MODIFIED", pod)
        self._kubelet.binder.retry_all()

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        await self._clock.sleep(seconds)

    async def _renew_leases(self) -> None:
        """Renew what a node controller looks at.

        The API server makes the namespace of these leases by itself; where it is missing there is
        no node controller either, and nothing is renewed.
        """
        try:
            await self._api.get(f"/api/v1/namespaces/{LEASE_NAMESPACE}")
        except ApiError:
            return
        while True:
            for machine in self._machines.values():
                if machine.up:
                    await self._renew_lease(machine.name)
            await asyncio.sleep(LEASE_INTERVAL)

    async def _renew_lease(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": format_time(datetime.now(UTC)),
        }
        try:
            await self._api.patch(f"{LEASES}/{name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            meta = {"name": name, "namespace": LEASE_NAMESPACE}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
            await self._api.create(LEASES, lease | {"spec": spec})
