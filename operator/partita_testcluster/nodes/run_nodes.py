"""Runs simulated nodes against an API server: wires scheduler, kubelets and agents."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_kube_config

from partita.kube.client import CLAIMS, NODES, PODS, SERVERS
from partita.kube.errors import KubernetesError
from partita.store.informer import Informer
from partita_testcluster.nodes.api import APIServer
from partita_testcluster.nodes.cluster import SimulatedCluster
from partita_testcluster.nodes.container_logs import KubeletAPI, PodLogs
from partita_testcluster.nodes.kubelet import Kubelets
from partita_testcluster.nodes.node import Clock, Machine, NodeSpec

__all__ = ["run_nodes"]

log = structlog.get_logger(__name__)

HEARTBEAT: Final = 10.0
"""Seconds between two writes of a healthy Node's status. A node controller considers a node lost
after 40 s without one (https://kubernetes.io/docs/concepts/architecture/nodes/, "Node
heartbeats")."""


async def run_nodes(
    cluster: str | os.PathLike[str] | Configuration,
    *,
    nodes: Sequence[NodeSpec],
    stop: asyncio.Event,
    speed: float = 1.0,
    started: asyncio.Event | None = None,
    scheduler: bool = True,
) -> None:
    """Simulate GPU nodes until stopped.

    Pods of an earlier simulation continue, and server Pods keep their GPUs. Stopping changes no
    objects, as when kubelets are stopped.

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
    started
        Set when the nodes are registered and Pods are watched.
    scheduler
        Whether to simulate kube-scheduler too, for a cluster that has none.

    Raises
    ------
    ValueError
        If `speed` is not above 0.
    KubernetesError
        If the API server rejects a call that nodes need.
    """
    if speed <= 0:
        raise ValueError(f"speed {speed}: write a number above 0, such as 10")
    if not isinstance(cluster, Configuration):
        path, cluster = os.fspath(cluster), Configuration()
        await load_kube_config(path, client_configuration=cluster, persist_config=False)  # type: ignore[no-untyped-call]
    api = APIServer(cluster)
    stopped = asyncio.create_task(stop.wait())
    work = asyncio.create_task(
        _simulate(api, nodes, Clock(speed), started or asyncio.Event(), scheduler=scheduler)
    )
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    except ExceptionGroup as group:
        refused = group.subgroup(KubernetesError)
        raise (refused.exceptions[0] if refused else group) from None
    finally:
        for task in (work, stopped):
            task.cancel()
        await asyncio.wait({work, stopped})
        await api.close()


async def _simulate(
    api: APIServer,
    nodes: Sequence[NodeSpec],
    clock: Clock,
    started: asyncio.Event,
    *,
    scheduler: bool,
) -> None:
    """Adopt the existing objects, each kind after the kinds on which it depends; then serve."""
    machines = {spec.name: Machine(spec, api, clock) for spec in nodes}
    logs: PodLogs = {}
    kubelet_api = KubeletAPI(logs)
    try:
        await kubelet_api.start()
        async with asyncio.TaskGroup() as tasks:
            cluster = SimulatedCluster(api, clock, machines, tasks)
            kubelets = Kubelets(cluster, logs, schedules=scheduler)
            for machine in machines.values():
                machine.kubelet_port = kubelet_api.port
            await asyncio.gather(*(machine.register() for machine in machines.values()))
            for kind, observe in (
                (SERVERS, kubelets.observe_server),
                (NODES, kubelets.observe_node),
                (CLAIMS, kubelets.observe_claim),
                (PODS, kubelets.observe_pod),
            ):
                informer = Informer(api.kube, kind, observe, order=kubelets.order)
                tasks.create_task(informer.run())
                await informer.synced.wait()
            log.info("nodes ready", nodes=len(machines), speed=clock.speed)
            started.set()
            while True:
                await asyncio.sleep(HEARTBEAT)
                for machine in machines.values():
                    if machine.up:
                        await machine.publish()
    finally:
        # The tasks of the Pods are over: they would write that their programs have succeeded.
        for machine in machines.values():
            for device in machine.devices:
                device.stop_all("")
        await kubelet_api.stop()
