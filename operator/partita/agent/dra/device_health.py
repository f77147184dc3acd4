"""Tells kubelet whether the GPU is healthy; kubelet shows it in the status of the Pods with claims.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/, "Resource
health monitoring".
"""

import asyncio
import time
from typing import Any, TypeAlias

from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from partita.agent.event_wait import ends_within
from partita.agent.health import ServerConditions
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.times import AgentTimes
from partita.constants import DEVICE

__all__ = ["DeviceHealthService"]

_Call: TypeAlias = Stream[Any, Any]


class DeviceHealthService:
    """The health of the device of one GPUServer.

    Parameters
    ----------
    server
        The GPUServer, which is the device's pool.
    times
        How long it waits.
    """

    def __init__(self, server: str, times: AgentTimes) -> None:
        self._server = server
        self._times = times
        self._reported: tuple[bool, str] | None = None
        self._changed = asyncio.Event()
        """Is set, and replaced, when there is something to report."""

    def set(self, conditions: ServerConditions) -> None:
        """Set the conditions of the GPUServer; kubelet is notified of a change at once."""
        ready = conditions.ready
        message = "" if ready else f"{conditions.reason}: {conditions.message}"
        if (ready, message) != self._reported:
            self._reported = (ready, message)
            self._changed.set()
            self._changed = asyncio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the service's methods, for grpclib."""
        return {
            "/v1alpha1.DRAResourceHealth/NodeWatchResources": Handler(
                self._watch, Cardinality.UNARY_STREAM, api.Empty, api.DevicesHealth
            )
        }

    async def _watch(self, call: _Call) -> None:
        while True:
            changed = self._changed
            if self._reported is not None:
                ready, message = self._reported
                health = api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=self._server, device_name=DEVICE),
                    health=api.DeviceHealth.HEALTHY if ready else api.DeviceHealth.UNHEALTHY,
                    last_updated_time=int(time.time()),
                    message=message,
                )
                await call.send_message(api.DevicesHealth(devices=[health]))
            await ends_within(self._times.health_every, changed.wait())
