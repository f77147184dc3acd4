"""Reconciles the GPUServers, server Pods and disruption budgets of partitions."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from partita.constants import COMPONENT_SERVER, FINALIZER, LABEL_COMPONENT, LABEL_PARTITION
from partita.kube.client import BUDGETS, PODS, SERVERS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubernetesError,
    NotFoundError,
    WebhookError,
)
from partita.kube.events import Events
from partita.models import GPUPartition, GPUServer
from partita.models.gpu_server import GPUServerStatus
from partita.models.quantities import format_time, seconds_since
from partita.partitions.gpu_claims import GPUSourceError, create_gpu_claim_template
from partita.partitions.gpu_servers import (
    GPUServerChanges,
    followed,
    plan_gpu_servers,
    server_spec,
)
from partita.partitions.limit_probes import LimitProbes
from partita.partitions.maintenance import is_protected, maintain
from partita.partitions.unavailable_gpus import StuckPods
from partita.pods.disruption_budget import budget_name, build_budget
from partita.pods.server_pod import ServerPodSettings, build_server_pod, server_pod_hash
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["PartitionReconciler"]

RETRY_AFTER = 2.0
"""Seconds until a partition is reconciled again after an error."""
PROBE_ENDS_WITHIN = 30.0
"""Seconds after which a GPU is released although its probe Pod still exists: an assumption. A probe
Pod ends within a few seconds if its agent runs."""


@dataclass
class PartitionReconciler:
    """Creates and releases the GPUs of each partition.

    It processes the partitions in `state.queues.gpu_servers`.
    """

    kube: Kube
    state: State
    events: Events
    settings: ServerPodSettings

    def __post_init__(self) -> None:
        self._queue = self.state.queues.gpu_servers
        self._underway: set[str] = set()
        """Names of partitions that are being reconciled."""
        self._again: set[str] = set()
        """Those of them that have changed meanwhile."""
        self._probes = LimitProbes(self.kube, self.state, self.settings)
        self._budgets: dict[str, tuple[str, bool]] = {}
        """By GPUServer name: the UID for which the budget was last written, and whether the budget
        exists."""
        self.problems: dict[str, StuckPods] = {}
        """Why GPUs could not be set up, by partition name."""
        self._log = structlog.get_logger().bind(part="partitions")

    async def run(self) -> None:
        """Reconcile partitions until cancelled: no slow request of one delays another."""
        self._underway.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                for name in sorted(await self._queue.get()):
                    if name in self._underway:
                        self._again.add(name)
                    else:
                        self._underway.add(name)
                        group.create_task(self._process(name))

    async def _process(self, name: str) -> None:
        try:
            problem = await self._reconcile(name)
        except KubernetesError as error:
            problem = _refused(error)
        except Exception as error:  # noqa: BLE001 - a bug that affects one partition
            self._log.exception("partition not reconciled", partition=name)
            problem = _refused(error)
        if problem is not None:
            self._log.warning("partition not set up", partition=name, error=problem.message)
            self._queue.add_after(name, RETRY_AFTER)
        self._note(name, problem)
        self._underway.discard(name)
        if name in self._again:
            self._again.discard(name)
            self._queue.add(name)

    def _note(self, name: str, problem: StuckPods | None) -> None:
        if self.problems.get(name) == problem:
            return
        if problem is not None:
            self.problems[name] = problem
        else:
            del self.problems[name]
        self.state.queues.partition_statuses.add(name)

    async def _reconcile(self, name: str) -> StuckPods | None:
        """Reconcile one partition; return why its server Pods could not be created, if so."""
        partition = self.state.partitions.get(name)
        await self._maintain(self.state.servers_of(name))
        servers = self.state.servers_of(name)
        todo = plan_gpu_servers(
            partition,
            servers,
            self._pods(servers),
            self.state.nodes,
            ending=self._ending(servers),
            probing=self._probing(servers),
            template_hash=server_pod_hash(partition, self.settings) if partition else "",
            unknown=bool(self.state.unknown_of(name)),
        )
        for server, pod in todo.record:
            await self._record(server, pod)
        problem = None
        if partition is not None:
            problem = await self._create(partition, todo)
            wanted = followed(partition.spec.sharing)
            for server in servers:
                has = server.spec.dump()
                if change := {name: value for name, value in wanted.items() if has[name] != value}:
                    await self._patch(server, {"spec": change})
        for server in todo.delete_servers:
            self._log.info("releasing gpu", partition=name, gpu=server.metadata.name)
            await self._delete_server(server)
        for pod in todo.delete_pods:
            await self._delete_pod(pod)
        for server in todo.reset:
            await self._reset(server)
        for server in todo.finish:
            await self._finish(server)
        servers = self.state.servers_of(name)
        await self._protect(servers)
        await self._probes.reconcile(partition, servers, self._pods(servers))
        return problem

    def _pods(self, servers: Sequence[GPUServer]) -> dict[str, PodView]:
        """Return server Pods, by name of their GPUServer."""
        found = ((s.metadata.name, self.state.server_pod(s.metadata.name)) for s in servers)
        return {name: pod for name, pod in found if pod is not None}

    def _ending(self, servers: Sequence[GPUServer]) -> set[str]:
        """Return the GPUServers with claims whose Pods are all being deleted."""
        found = set()
        for server in servers:
            allocated = server.status.allocations
            if not allocated:
                continue
            pods = [self.state.pods.get(entry.pod_uid) for entry in allocated.values()]
            alive = [pod for pod in pods if pod is not None and pod.alive]
            if alive and all(pod.deleting for pod in alive):
                found.add(server.metadata.name)
            elif self.state.server_pod(server.metadata.name) is None:
                # Its Pods are evicted; their deletion does not queue the partition.
                self._queue.add_after(server.spec.partition, RETRY_AFTER)
        return found

    def _probing(self, servers: Sequence[GPUServer]) -> set[str]:
        """Return the GPUServers to release whose probe Pod still ends.

        It is waited for only for some time: an agent that fails cannot end it.
        """
        now = datetime.now(UTC)
        found = set()
        for server in servers:
            since, probe = server.metadata.deletion_timestamp, self.state.probe_pod(server)
            if since and probe and probe.node and seconds_since(since, now) < PROBE_ENDS_WITHIN:
                found.add(server.metadata.name)
                self._queue.add_after(server.spec.partition, RETRY_AFTER)
        return found

    async def _maintain(self, servers: Sequence[GPUServer]) -> None:
        todo = maintain(servers, self._pods(servers), self.state.nodes)
        for server in todo.drain:
            self._log.info("draining gpu", gpu=server.metadata.name, node=server.status.node)
            now = format_time(datetime.now(UTC))
            drained = {"drainSince": now, "drainReason": "NodeMaintenance"}
            await self._patch(server, {"spec": drained})
        for server in todo.resume:
            self._log.info("maintenance is over", gpu=server.metadata.name)
            await self._patch(server, {"spec": {"drainSince": None, "drainReason": None}})
        for pod in todo.leave:
            await self._delete_pod(pod)

    async def _patch(self, server: GPUServer, patch: dict[str, Any], subresource: str = "") -> None:
        """Change a GPUServer; later if it was written meanwhile, and the watch is behind."""
        meta = server.metadata
        try:
            body = await self.kube.patch(
                SERVERS,
                meta.name,
                patch,
                subresource=subresource,
                resource_version=meta.resource_version,
            )
        except (NotFoundError, ConflictError):
            self._queue.add_after(server.spec.partition, RETRY_AFTER)
            return
        self.state.apply_server(body)

    async def _protect(self, servers: Sequence[GPUServer]) -> None:
        """Create or delete the disruption budget of each server Pod."""
        for server in servers:
            if server.metadata.deletion_timestamp is not None:
                self._budgets.pop(server.metadata.name, None)
                continue  # its budget is garbage-collected with it
            pod = self.state.server_pod(server.metadata.name)
            node = self.state.nodes.get(pod.node if pod else server.status.node)
            await self._set_budget(server, wanted=is_protected(server, node))

    async def _set_budget(self, server: GPUServer, *, wanted: bool) -> None:
        name, uid = server.metadata.name, server.metadata.uid
        if self._budgets.get(name) == (uid, wanted):
            return
        if wanted:
            with suppress(AlreadyExistsError):  # an earlier operator created it
                await self.kube.create(BUDGETS, build_budget(server, self.settings.namespace))
        else:
            with suppress(NotFoundError):
                await self.kube.delete(BUDGETS, budget_name(server), self.settings.namespace)
        self._budgets[name] = uid, wanted

    async def _create(self, partition: GPUPartition, todo: GPUServerChanges) -> StuckPods | None:
        for name in todo.create_servers:
            self._log.info("creating gpu server", partition=partition.metadata.name, gpu=name)
            body = await self._create_server(partition, name)
            if body is not None:
                self.state.apply_server(body)
        fresh = [self.state.servers[n] for n in todo.create_servers if n in self.state.servers]
        without = [
            server
            for server in [*todo.create_pods, *fresh, *todo.bring_back]
            if self.state.server_pod(server.metadata.name) is None
        ]
        if without and partition.spec.gpu_source == "DRA":
            try:
                await create_gpu_claim_template(self.kube, partition, self.settings.namespace)
            except GPUSourceError as error:
                return StuckPods("GPUSourceMissing", str(error))
        for server in without:
            try:
                await self._create_pod(server, partition, pinned=server in todo.bring_back)
            except (ForbiddenError, InvalidError, WebhookError) as error:
                return _refused(error)
        return None

    async def _create_pod(
        self, server: GPUServer, partition: GPUPartition, *, pinned: bool
    ) -> None:
        node = server.status.node if pinned else ""
        manifest = build_server_pod(server, partition, self.settings, node=node)
        name, namespace = server.metadata.name, self.settings.namespace
        try:
            self.state.apply_pod(await self.kube.create(PODS, manifest))
        except AlreadyExistsError:
            if await self._is_taken(server):
                return
        pod = self.state.server_pod(name)
        if pod is not None:
            await self._record(server, pod)
            return
        if not pinned:  # else it is recorded once the report of the last one is reset
            self.events.warn(
                partition,
                "ServerPodNameTaken",
                f"delete Pod {namespace}/{name}: it does not belong to GPUServer {name}",
            )
        self._queue.add_after(server.spec.partition, RETRY_AFTER)

    async def _is_taken(self, server: GPUServer) -> bool:
        """Read the Pod of a GPUServer's name, which may be missing in the informer.

        Return whether it is that of an earlier GPUServer. It is deleted, because its agent reports
        to this one until it is garbage-collected, and the partition is looked at again.
        """
        name, namespace = server.metadata.name, self.settings.namespace
        with suppress(NotFoundError, ConflictError):
            body = await self.kube.get(PODS, name, namespace)
            self.state.apply_pod(body)
            owners = body["metadata"].get("ownerReferences") or ()
            if any(o["kind"] == "GPUServer" and o["uid"] != server.metadata.uid for o in owners):
                self._queue.add_after(server.spec.partition, RETRY_AFTER)
                await self.kube.delete(PODS, name, namespace, uid=body["metadata"]["uid"])
                return True
        return False

    async def _record(self, server: GPUServer, pod: PodView) -> None:
        """Write the UID of a server Pod to its GPUServer, so that no other Pod counts."""
        await self._patch(server, {"status": {"podUID": pod.uid}}, "status")

    async def _create_server(self, partition: GPUPartition, name: str) -> dict[str, object] | None:
        meta = partition.metadata
        manifest = {
            "metadata": {
                "name": name,
                "labels": {LABEL_PARTITION: meta.name, LABEL_COMPONENT: COMPONENT_SERVER},
                "ownerReferences": [partition.owner_reference()],
                "finalizers": [FINALIZER],
            },
            "spec": server_spec(meta.name, partition.spec.sharing),
        }
        try:
            return await self._without_field_owners(await self.kube.create(SERVERS, manifest))
        except AlreadyExistsError:
            found = await self.kube.get(SERVERS, name)
            if found["spec"].get("partition") != meta.name:
                self.events.warn(
                    partition,
                    "GPUServerNameTaken",
                    f"GPUServer {name} belongs to partition {found['spec'].get('partition')}: "
                    "rename one of the two partitions",
                )
                return None
            return found

    async def _without_field_owners(self, created: dict[str, Any]) -> dict[str, Any]:
        """Stop the API server from recording the owner of each field of a new GPUServer; return it.

        The record (`metadata.managedFields`) is used by server-side apply, and nobody applies a
        GPUServer. To keep it takes a good part of each write. The API server starts again when
        somebody applies the object (https://kubernetes.io/docs/reference/using-api/
        server-side-apply/#clearing-managedfields, and `skipNonAppliedManager` in
        k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go). If it was written
        meanwhile, the record stays.
        """
        meta = created["metadata"]
        patch = {"metadata": {"uid": meta["uid"], "managedFields": [{}]}}
        version = meta["resourceVersion"]
        try:
            return await self.kube.patch(SERVERS, meta["name"], patch, resource_version=version)
        except (ConflictError, NotFoundError):
            return created

    async def _delete_server(self, server: GPUServer) -> None:
        meta = server.metadata
        try:
            await self.kube.delete(SERVERS, meta.name, uid=meta.uid)
            self.state.apply_server(await self.kube.get(SERVERS, meta.name))
        except (NotFoundError, ConflictError):
            pass  # gone already

    async def _delete_pod(self, pod: PodView) -> None:
        gone = bool(pod.node) and pod.node not in self.state.nodes
        with suppress(NotFoundError, ConflictError):  # gone already
            await self.kube.delete(
                PODS, pod.name, pod.namespace, uid=pod.uid, grace=0 if gone else None
            )

    async def _reset(self, server: GPUServer) -> None:
        """Clear the last agent's report, because the next server Pod may get another GPU.

        The previous leader may have created that Pod already, and it may be missing in the
        informer.
        """
        if await self._is_taken(server) or self.state.server_pod(server.metadata.name) is not None:
            return
        self._log.info("gpu lost its server", gpu=server.metadata.name)
        empty = GPUServerStatus.unset()
        del empty["allocations"]
        await self._patch(server, {"status": empty}, "status")

    async def _finish(self, server: GPUServer) -> None:
        others = [f for f in server.metadata.finalizers if f != FINALIZER]
        if len(others) < len(server.metadata.finalizers):
            await self._patch(server, {"metadata": {"finalizers": others}})


def _refused(error: Exception) -> StuckPods:
    return StuckPods("ServerPodsRefused", f"the GPUs could not be set up: {error}")
