"""What kubelet asks an agent beside claims: its driver's name, and whether the GPU is healthy.

kubelet watches a directory for sockets and asks each new one which driver it belongs to. All agents
of a node register the same driver, and kubelet uses one of those that are connected
(k8s.io/kubernetes, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, `get`).

It shows in the status of the Pods with claims whether their devices are healthy
(https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/, "Resource
health monitoring").
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from partita.agent.event_wait import ends_within
from partita.agent.health import ServerConditions
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.times import AgentTimes
from partita.constants import DEVICE, DRIVER

__all__ = ["DeviceHealthService", "Registration"]

_Call: TypeAlias = Stream[Any, Any]
_TYPE: Final = "DRAPlugin"
"""`DRAPlugin` in k8s.io/kubelet, pkg/apis/pluginregistration/v1/constants.go."""
_SERVICES: Final = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""The services as kubelet names them: `DRAPluginService` in k8s.io/kubelet, pkg/apis/dra/v1, and
`DRAResourceHealthService` in pkg/apis/dra-health/v1alpha1."""


@dataclass(slots=True)
class Registration:
    """Tells kubelet which driver the agent belongs to.

    Parameters
    ----------
    endpoint
        The socket of the driver's services.
    """

    endpoint: Path
    registered: bool = False
    """Whether kubelet has accepted the driver."""

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the service's methods, for grpclib."""
        service, once = "/pluginregistration.Registration", Cardinality.UNARY_UNARY
        return {
            f"{service}/GetInfo": Handler(self._info, once, api.Empty, api.PluginInfo),
            f"{service}/NotifyRegistrationStatus": Handler(
                self._notified, once, api.RegistrationStatus, api.Empty
            ),
        }

    async def _info(self, call: _Call) -> None:
        info = api.PluginInfo(
            type=_TYPE, name=DRIVER, endpoint=str(self.endpoint), supported_versions=_SERVICES
        )
        await call.send_message(info)

    async def _notified(self, call: _Call) -> None:
        status = await call.recv_message()
        self.registered = status is not None and status.plugin_registered
        log = structlog.get_logger(__name__).bind(driver=DRIVER, endpoint=str(self.endpoint))
        if self.registered:
            log.info("driver registered with kubelet")
        else:
            # Kubernetes below 1.34 has no dra/v1: its claims are not served.
            log.warning("driver not registered with kubelet", error=status and status.error)
        await call.send_message(api.Empty())


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
