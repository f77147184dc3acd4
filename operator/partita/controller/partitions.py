"""Carries out what `carving` finds, for each partition that changed."""

import asyncio
from contextlib import suppress

import structlog

from partita.constants import COMPONENT_SERVER, FINALIZER, LABEL_COMPONENT, LABEL_PARTITION
from partita.controller.carving import Carving, carve
from partita.controller.changes import Changes
from partita.kube.client import PODS, SERVERS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)
from partita.kube.events import Events
from partita.models import GPUPartition, GPUServer
from partita.pods.server import ServerPodSettings, build_server_pod
from partita.scheduling.state import State
from partita.scheduling.views import PodView

__all__ = ["Partitions"]

RETRY_AFTER = 2.0
"""Seconds before a partition whose GPUs could not be set up is looked at again."""


class Partitions:
    """Sees to it that each partition has its GPUs."""

    def __init__(
        self, kube: Kube, state: State, events: Events, settings: ServerPodSettings
    ) -> None:
        self._kube = kube
        self._state = state
        self._events = events
        self._settings = settings
        self._changes = Changes()
        self._log = structlog.get_logger().bind(part="partitions")

    def changed(self, name: str) -> None:
        """Have a partition looked at."""
        self._changes.add(name)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            for name in await self._changes.take():
                try:
                    await self._reconcile(name)
                except KubernetesError as error:
                    self._log.warning("partition not set up", partition=name, error=str(error))
                    asyncio.get_running_loop().call_later(RETRY_AFTER, self.changed, name)

    async def _reconcile(self, name: str) -> None:
        partition = self._state.partitions.get(name)
        servers = self._state.servers_of(name)
        todo = carve(partition, servers, self._state.server_pods, self._state.nodes)
        if partition is not None:
            await self._create(partition, todo)
        for server in todo.delete_servers:
            self._log.info("giving gpu back", partition=name, gpu=server.metadata.name)
            await self._delete_server(server)
        for pod in todo.delete_pods:
            await self._delete_pod(pod)
        for server in todo.reset:
            await self._reset(server)
        for server in todo.finish:
            await self._finish(server)

    async def _create(self, partition: GPUPartition, todo: Carving) -> None:
        for name in todo.create_servers:
            self._log.info("carving gpu", partition=partition.metadata.name, gpu=name)
            body = await self._create_server(partition, name)
            if body is not None:
                self._state.apply_server(body)
        fresh = [self._state.servers[n] for n in todo.create_servers if n in self._state.servers]
        for server in [*todo.create_pods, *fresh]:
            if server.metadata.name in self._state.server_pods:
                continue
            manifest = build_server_pod(server, partition, self._settings)
            try:
                self._state.apply_pod(await self._kube.create(PODS, manifest))
            except AlreadyExistsError:
                meta = manifest["metadata"]
                found = await self._kube.get(PODS, meta["name"], meta["namespace"])
                self._state.apply_pod(found)

    async def _create_server(self, partition: GPUPartition, name: str) -> dict[str, object] | None:
        meta = partition.metadata
        owner = {
            "apiVersion": partition.api_version(),
            "kind": "GPUPartition",
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
        manifest = {
            "metadata": {
                "name": name,
                "labels": {LABEL_PARTITION: meta.name, LABEL_COMPONENT: COMPONENT_SERVER},
                "ownerReferences": [owner],
                "finalizers": [FINALIZER],
            },
            "spec": {
                "partition": meta.name,
                "mode": partition.spec.sharing.mode.value,
                "maxJobs": partition.spec.sharing.max_jobs_per_gpu,
            },
        }
        try:
            return await self._kube.create(SERVERS, manifest)
        except AlreadyExistsError:
            found = await self._kube.get(SERVERS, name)
            if found["spec"].get("partition") != meta.name:
                self._events.warn(
                    partition,
                    "GPUServerNameTaken",
                    f"GPUServer {name} belongs to partition {found['spec'].get('partition')}: "
                    "rename one of the two partitions",
                )
                return None
            return found

    async def _delete_server(self, server: GPUServer) -> None:
        meta = server.metadata
        try:
            await self._kube.delete(SERVERS, meta.name, uid=meta.uid)
            self._state.apply_server(await self._kube.get(SERVERS, meta.name))
        except (NotFoundError, ConflictError):
            pass  # gone already

    async def _delete_pod(self, pod: PodView) -> None:
        gone = bool(pod.node) and pod.node not in self._state.nodes
        with suppress(NotFoundError, ConflictError):  # gone already
            await self._kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, now=gone)

    async def _reset(self, server: GPUServer) -> None:
        """Forget what the last agent said: the next server Pod may get another GPU.

        Whoever led before us may have made that Pod, of which no watch has told us yet.
        """
        namespace = self._settings.namespace
        with suppress(NotFoundError):
            self._state.apply_pod(await self._kube.get(PODS, server.metadata.name, namespace))
            return
        self._log.info("gpu lost its server", gpu=server.metadata.name)
        empty = dict.fromkeys(
            (
                "node",
                "uuid",
                "product",
                "memory",
                "smCount",
                "pcieBandwidth",
                "driverVersion",
                "mps",
                "usage",
                "conditions",
            )
        )
        try:
            body = await self._kube.patch(
                SERVERS,
                server.metadata.name,
                {"status": empty},
                subresource="status",
                resource_version=server.metadata.resource_version,
            )
        except (NotFoundError, ConflictError):
            return  # the watch tells
        self._state.apply_server(body)

    async def _finish(self, server: GPUServer) -> None:
        meta = server.metadata
        others = [f for f in meta.finalizers if f != FINALIZER]
        if len(others) == len(meta.finalizers):
            return
        try:
            await self._kube.patch(
                SERVERS,
                meta.name,
                {"metadata": {"finalizers": others}},
                resource_version=meta.resource_version,
            )
        except (NotFoundError, ConflictError):
            self.changed(server.spec.partition)
