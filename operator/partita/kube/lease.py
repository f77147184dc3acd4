"""Leadership by a coordination.k8s.io Lease, with a fence for a leader that fell asleep.

As in client-go's leaderelection: a candidate measures with its own clock how long it has seen
the same record, so the clocks of different nodes are never compared.
"""

import asyncio
import math
import time
from datetime import UTC, datetime
from typing import Any

import structlog

from partita.kube.client import LEASES, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)

__all__ = ["Lease", "LeaseLostError"]


LOOK_EVERY = 0.5
"""Seconds between two looks of one that waits: so long nobody works after it was given back."""


class LeaseLostError(Exception):
    """Another process leads now, or the API server could not be reached for too long."""


class Lease:
    """One Lease, wanted by this process.

    Parameters
    ----------
    kube
        A client that is not fenced by this very lease.
    namespace, name
        The Lease object.
    identity
        Who we are. A restarted container of the same Pod may take its own lease up again.
    duration
        Seconds without renewal after which others may take it.
    """

    def __init__(
        self, kube: Kube, *, namespace: str, name: str, identity: str, duration: float
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self.duration = duration
        self._period = duration / 5
        self._valid_until = 0.0
        self._seen: tuple[Any, Any] | None = None
        self._free_at = 0.0
        """Until then somebody else may lead, even if the Lease is gone."""
        self._log = structlog.get_logger().bind(part="lease", identity=identity)

    def held(self) -> bool:
        """Tell whether we lead for certain. A process that slept past its lease finds out here.

        `CLOCK_BOOTTIME` goes on while the process is stopped and while the machine sleeps.
        """
        return _clock() < self._valid_until

    async def acquire(self) -> None:
        """Wait until we lead."""
        said = ""
        while True:
            holder = await self._try()
            if holder is None:
                self._log.info("leading")
                return
            if holder != said:
                said = holder
                self._log.info("waiting for the lease", holder=holder)
            await asyncio.sleep(min(LOOK_EVERY, self._period))

    async def keep(self) -> None:
        """Renew for as long as we live.

        Raises
        ------
        LeaseLostError
            Once we no longer lead.
        """
        while True:
            await asyncio.sleep(self._period)
            holder = await self._try()
            if not self.held():
                raise LeaseLostError(f"the lease is lost to {holder or 'nobody'}")

    async def release(self) -> None:
        """Give it back, so that another can lead at once."""
        if not self.held():
            return
        self._valid_until = 0.0
        try:
            lease = await self._kube.get(LEASES, self._name, self._namespace)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(LEASES, lease)
        except KubernetesError as error:
            self._log.warning("could not give the lease back", error=str(error))

    async def _try(self) -> str | None:
        """Take or renew the lease; return who else holds it."""
        started = _clock()
        try:
            async with asyncio.timeout(self.duration):
                return await self._take(started)
        except (KubernetesError, TimeoutError) as error:
            self._log.warning("lease not renewed", error=str(error))
            return "unknown"

    async def _take(self, started: float) -> str | None:
        try:
            lease = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            if self._seen is not None and started < self._free_at:
                # Deleted by hand: who held it goes on, and makes it anew when he renews it.
                return str(self._seen[0])
            meta = {"name": self._name, "namespace": self._namespace}
            try:
                await self._kube.create(LEASES, {"metadata": meta, "spec": self._spec({}, 0)})
            except AlreadyExistsError:
                return "somebody who was faster"
            except NotFoundError:
                self._log.error("namespace not found: create it", namespace=self._namespace)
                return "nobody"
            self._valid_until = started + self.duration
            return None
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self.identity}:
            self._valid_until = 0.0
            record = (holder, spec.get("renewTime"))
            if record != self._seen:
                # Not `started`: it may have been renewed since.
                self._seen = record
                self._free_at = _clock() + float(spec.get("leaseDurationSeconds") or 0)
            if started < self._free_at:
                return str(holder)
        self._free_at = 0.0
        changes = int(spec.get("leaseTransitions") or 0) + (holder != self.identity)
        lease["spec"] = self._spec(spec, changes)
        try:
            await self._kube.replace(LEASES, lease)
        except ConflictError:
            return "somebody who was faster"
        self._valid_until = started + self.duration
        return None

    def _spec(self, old: dict[str, Any], changes: int) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = old.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.duration),
            "acquireTime": old.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": changes,
        }


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
