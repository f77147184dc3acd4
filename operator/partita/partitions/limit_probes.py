"""Runs probe Pods, which show whether the driver limits the GPU memory of containers.

The agent asks for one by `status.capabilities.limitHook: Unknown`, and writes what it has shown to
the same field. So nothing is stored here: after a crash of the operator or the agent, both continue
from that field, from the Pod, and from its claim.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from partita.kube.client import PODS, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from partita.kube.own_claims import NameTakenError, create_allocated
from partita.models import GPUPartition, GPUServer, Outcome
from partita.pods.claim_allocation import slice_parameters
from partita.pods.probe_pod import build_probe_claim, build_probe_pod, probe_entry, probe_name
from partita.pods.server_pod import ServerPodSettings
from partita.store.state import State
from partita.store.views import PodView
from partita.store.work_queue import utc_now

__all__ = ["LimitProbes", "ProbeChanges", "plan_probes"]

AGAIN_AFTER: Final = 10.0
"""Minimum seconds between two probe Pods of a GPU, as kubelet may reject one at once. An
assumption."""


@dataclass(slots=True)
class ProbeChanges:
    """Changes to make; empty if the actual state is the desired one."""

    create: list[GPUServer] = field(default_factory=list)
    """GPUServers that need a probe Pod."""
    delete: list[PodView] = field(default_factory=list)
    """Probe Pods that are no longer needed, or have shown nothing."""
    waiting: list[tuple[GPUServer, PodView]] = field(default_factory=list)
    """Probe Pods that are not bound: their claims may be missing."""


def plan_probes(
    servers: Sequence[GPUServer], pods: Mapping[str, PodView], probes: Mapping[str, PodView]
) -> ProbeChanges:
    """Compare the probe Pods that a partition's GPUs need with the actual ones.

    Parameters
    ----------
    servers
        The GPUServers of the partition.
    pods, probes
        Server Pods and probe Pods, by name of their GPUServer.
    """
    todo = ProbeChanges()
    for server in servers:
        name = server.metadata.name
        probe = probes.get(name)
        needed = _is_needed(server, pods.get(name))
        if probe is None and needed:
            todo.create.append(server)
        elif probe is not None and not probe.deleting and not (needed and _may_show(probe)):
            todo.delete.append(probe)
        elif probe is not None and not (probe.deleting or probe.node):
            todo.waiting.append((server, probe))
    return todo


def _is_needed(server: GPUServer, pod: PodView | None) -> bool:
    """Return whether the agent of a GPU waits for a probe."""
    status = server.status
    unknown = status.capabilities is not None and status.capabilities.limit_hook == "Unknown"
    return (
        unknown
        and server.out_of_service_since is None
        and bool(status.uuid and status.memory)
        and not status.holds("Faulted")
        and pod is not None
        and not (pod.deleting or pod.outcome.finished)
    )


def _may_show(probe: PodView) -> bool:
    """Return whether a probe Pod runs, or has failed, so that the agent can read why."""
    return not probe.outcome.finished or probe.outcome.outcome is Outcome.FAILED


@dataclass
class LimitProbes:
    """Creates and deletes the probe Pods.

    Parameters
    ----------
    settings
        Settings of the server Pods, whose image and namespace the probe Pods use.
    """

    kube: Kube
    state: State
    settings: ServerPodSettings

    def __post_init__(self) -> None:
        self._queue = self.state.queues.gpu_servers
        self._created: dict[str, float] = {}
        """Time of the last creation, by name of the probe Pod."""
        self._deleted: dict[str, str] = {}
        """UID of the Pod that was deleted last, by its name."""
        self._log = structlog.get_logger().bind(part="probes")

    async def reconcile(
        self,
        partition: GPUPartition | None,
        servers: Sequence[GPUServer],
        pods: Mapping[str, PodView],
    ) -> None:
        """Create and delete the probe Pods of a partition.

        Parameters
        ----------
        partition
            The partition; None if it is deleted.
        servers
            Its GPUServers.
        pods
            Server Pods, by name of their GPUServer.

        Raises
        ------
        KubernetesError
            If the API server refuses a request.
        """
        found = ((s.metadata.name, self.state.probe_pod(s)) for s in servers)
        probes = {name: probe for name, probe in found if probe is not None}
        todo = plan_probes(servers, pods, probes)
        for probe in todo.delete:
            await self._delete(probe)
        for server, probe in todo.waiting:
            await self._claim(server, probe)
        if partition is not None:
            for server in todo.create:
                await self._create(server, partition)

    async def _delete(self, probe: PodView) -> None:
        if self._deleted.get(probe.name) == probe.uid:
            return  # the watch will report it
        self._log.info("deleting probe", pod=probe.name)
        with suppress(NotFoundError, ConflictError):  # gone already
            # Its program has nothing to finish. A grace of 0 would not wait for kubelet.
            await self.kube.delete(PODS, probe.name, probe.namespace, uid=probe.uid, grace=1)
        self._deleted[probe.name] = probe.uid

    async def _create(self, server: GPUServer, partition: GPUPartition) -> None:
        name, now = probe_name(server.metadata.name), asyncio.get_running_loop().time()
        wait = self._created.get(name, now - AGAIN_AFTER) + AGAIN_AFTER - now
        if wait > 0:
            self._queue.add_after(server.spec.partition, wait)
            return
        self._created[name] = now
        self._log.info("creating probe", gpu=server.metadata.name)
        try:
            manifest = build_probe_pod(server, partition, self.settings)
            body = await self.kube.create(PODS, manifest)
        except AlreadyExistsError:
            # Another operator's, or that of an earlier GPUServer, which is garbage-collected.
            self._queue.add_after(server.spec.partition, AGAIN_AFTER)
            return
        self.state.apply_pod(body)
        if (probe := self.state.probe_pod(server)) is not None:
            await self._claim(server, probe)

    async def _claim(self, server: GPUServer, probe: PodView) -> None:
        """Create the claim of a probe Pod, if it is missing."""
        now = utc_now()
        entry = probe_entry(server, probe.namespace, now)
        claim = build_probe_claim(server, probe.name, probe.uid, entry)
        slices = (slice_parameters(entry, server),)
        try:
            await create_allocated(self.kube, claim, slices, server.status.node, now)
        except (NameTakenError, ConflictError):  # that of an earlier probe Pod
            self._queue.add_after(server.spec.partition, AGAIN_AFTER)
