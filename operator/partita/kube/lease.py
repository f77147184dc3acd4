"""Leader election by a coordination.k8s.io Lease, with a fence for a stopped leader.

As in client-go's leaderelection, a candidate measures with its own clock for how long the record
has not changed, so the clocks of different nodes are never compared.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from partita.kube.client import LEASES, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    LeaseLostError,
    NotFoundError,
)

__all__ = ["Lease"]


LOOK_EVERY = 0.5
"""Seconds between two reads of a candidate: the maximum time without a leader after a release."""


@dataclass
class Lease:
    """One Lease for which this process is a candidate.

    Parameters
    ----------
    kube
        A client that is not fenced by this Lease.
    namespace, name
        The Lease object.
    identity
        Name of this process. A restarted container of the same Pod may continue its own Lease.
    duration
        Seconds without renewal after which others may acquire it.
    """

    kube: Kube
    namespace: str
    name: str
    identity: str
    duration: float

    def __post_init__(self) -> None:
        self._period = self.duration / 5
        self._valid_until = 0.0
        self._has_written = False
        """Whether the Lease may be that of this process: a write without an answer counts."""
        self._record: tuple[Any, Any] | None = None
        self._free_at = 0.0
        """Time until which another process may be the leader, even if the Lease was deleted."""
        self._log = structlog.get_logger().bind(part="lease", identity=self.identity)

    def held(self) -> bool:
        """Return whether this process is certainly the leader.

        The result is also correct after the process was stopped, because `CLOCK_BOOTTIME` continues
        while the process is stopped and while the machine sleeps.
        """
        return _clock() < self._valid_until

    async def acquire(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until this process is the leader; return False if it is stopped before.

        Whoever is stopped waits for the answer to its last request, and may have to `release`. If
        there was no answer, the Lease may be its own all the same, and is released here.
        """
        logged = ""
        while not stopped():
            holder = await self._try()
            if holder is None:
                self._log.info("leading")
                return True
            if holder != logged:
                logged = holder
                self._log.info("waiting for the lease", holder=holder)
            await asyncio.sleep(min(LOOK_EVERY, self._period))
        await self.release()
        return False

    async def keep(self) -> None:
        """Renew the Lease until it is lost.

        Raises
        ------
        LeaseLostError
            If this process is no longer the leader.
        """
        while True:
            await asyncio.sleep(self._period)
            holder = await self._try(lapsed=not self.held())
            if not self.held():
                raise LeaseLostError(f"the lease is lost to {holder or 'nobody'}")

    async def release(self) -> None:
        """Release the Lease, so that another process can acquire it at once."""
        if not self._has_written:
            return
        self._valid_until = 0.0
        try:
            async with asyncio.timeout(self.duration):
                await self._give_back()
        except (KubernetesError, TimeoutError) as error:
            self._log.warning("lease not released", error=str(error))

    async def _give_back(self) -> None:
        while True:
            lease = await self.kube.get(LEASES, self.name, self.namespace)
            if lease["spec"].get("holderIdentity") != self.identity:
                return
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            with suppress(ConflictError):  # a renewal was still under way
                await self.kube.replace(LEASES, lease)
                return

    async def _try(self, *, lapsed: bool = False) -> str | None:
        """Acquire or renew the Lease; return its holder if that is another process.

        Parameters
        ----------
        lapsed
            Whether this process was the leader until its Lease lapsed. It may only renew it then:
            if the Lease is gone or free, another process may have been the leader meanwhile.
        """
        started = _clock()
        try:
            async with asyncio.timeout(self.duration):
                return await self._take(started, lapsed=lapsed)
        except (KubernetesError, TimeoutError) as error:
            self._log.warning("lease not renewed", error=str(error))
            return "unknown"

    async def _take(self, started: float, *, lapsed: bool) -> str | None:
        try:
            lease = await self.kube.get(LEASES, self.name, self.namespace)
        except NotFoundError:
            if lapsed or started < self._free_at:
                # The Lease was deleted by hand. Its holder creates it again at its next renewal.
                return str(self._record[0]) if self._record is not None else "nobody"
            meta = {"name": self.name, "namespace": self.namespace}
            self._has_written = True
            try:
                await self.kube.create(LEASES, {"metadata": meta, "spec": self._spec({}, 0)})
            except AlreadyExistsError:
                return "another candidate"
            except NotFoundError:
                self._log.error("namespace not found: create it", namespace=self.namespace)
                return "nobody"
            self._valid_until = started + self.duration
            return None
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self.identity}:
            self._valid_until = 0.0
            record = (holder, spec.get("renewTime"))
            if record != self._record:
                # Not `started`: the Lease may have been renewed after that.
                self._record = record
                self._free_at = _clock() + float(spec.get("leaseDurationSeconds") or 0)
            if started < self._free_at:
                return str(holder)
        if lapsed and holder != self.identity:
            return "nobody"
        self._free_at = 0.0
        changes = int(spec.get("leaseTransitions") or 0) + (holder != self.identity)
        lease["spec"] = self._spec(spec, changes)
        self._has_written = True
        try:
            await self.kube.replace(LEASES, lease)
        except ConflictError:
            return "another candidate"
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
