"""Keeps the DeviceClasses and ResourceSlices in the cluster as they should be.

The objects are listed again and again, because others delete them too: kubelet deletes the slices
of its node when it starts, and 30 s after a driver is gone
(pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go in k8s.io/kubernetes).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog

from partita.constants import PART_OF
from partita.kube.client import DEVICE_CLASSES, RESOURCE_SLICES, Kind, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)
from partita.partitions.devices import PROBE_SLICE, desired_classes, desired_slices, keeps_taints
from partita.store.state import State

__all__ = ["DevicePublisher"]

Json = dict[str, Any]


@dataclass
class DevicePublisher:
    """The only writer of the DeviceClasses and ResourceSlices of Partita."""

    kube: Kube
    state: State

    def __post_init__(self) -> None:
        self._queue = self.state.queues.devices
        self._written: dict[tuple[Kind, str], tuple[Json, str]] = {}
        """What was written last, and the resource version that it got, by kind and name."""
        self._problem = ""
        self._log = structlog.get_logger().bind(part="devices")

    async def run(self) -> NoReturn:
        """Check the objects until cancelled: after changes, and regularly."""
        while True:
            problem = ""
            try:
                await self.reconcile()
            except KubernetesError as error:
                problem = str(error)
            if problem and problem != self._problem:
                self._log.warning("devices not published", error=problem)
            self._problem = problem
            await asyncio.sleep(self.kube.times.devices_pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.kube.times.check_devices):
                    await self._queue.get()

    async def reconcile(self) -> None:
        """Compare the objects in the cluster with those that should exist, and write the changes.

        Raises
        ------
        KubernetesError
            If the API server refuses a request.
        """
        kept = await self.kube.create(RESOURCE_SLICES, PROBE_SLICE, dry_run=True)
        tainted = keeps_taints(kept)
        classes: dict[str, Json] = {}
        slices: dict[str, Json] = {}
        for name, partition in self.state.partitions.items():
            if not partition.metadata.deletion_timestamp:
                classes |= desired_classes(partition, tainted=tainted)
                slices |= desired_slices(partition, self.state.servers_of(name))
        # A class that selects devices must not exist before it is known that they are tainted.
        await self._write(DEVICE_CLASSES, classes)
        await self._write(RESOURCE_SLICES, slices)

    async def _write(self, kind: Kind, desired: Mapping[str, Json]) -> None:
        own = ",".join(f"{key}={value}" for key, value in PART_OF.items())
        listed, _ = await self.kube.list(kind, label_selector=own)
        found = {one["metadata"]["name"]: one["metadata"] for one in listed}
        for name, body in desired.items():
            version = found[name]["resourceVersion"] if name in found else ""
            if self._written.get((kind, name)) != (body, version):
                kept = await self._put(kind, name, body)
                self._written[kind, name] = body, kept["metadata"]["resourceVersion"]
        for name in found.keys() - desired.keys():
            if self._owner_exists(found[name]):
                with suppress(NotFoundError, ConflictError):
                    await self.kube.delete(kind, name, uid=found[name]["uid"])
        for key in [k for k in self._written if k[0] is kind and k[1] not in desired]:
            del self._written[key]

    async def _put(self, kind: Kind, name: str, body: Json) -> Json:
        """Create an object, or make an existing one equal to it."""
        try:
            created = await self.kube.create(kind, body)
        except AlreadyExistsError:
            return await self.kube.patch(kind, name, body)
        self._log.info("published", kind=kind.kind, name=name)
        return created

    def _owner_exists(self, meta: Json) -> bool:
        """Return whether the partition or GPUServer of an object is known.

        If it is not, the garbage collector deletes the object, or the owner cannot be read and the
        object stays.
        """
        uids = {owner["uid"] for owner in meta.get("ownerReferences") or ()}
        known = (*self.state.partitions.values(), *self.state.servers.values())
        return any(one.metadata.uid in uids for one in known)
