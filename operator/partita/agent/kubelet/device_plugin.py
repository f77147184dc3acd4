"""A kubelet device plugin for one GPU: offers slots, reports their health, mounts MPS directories.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/. Each
agent on a node has its own socket and resource. A slot is only a number: the resource's name
determines which GPU a job gets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from partita.agent.errors import KubeletError, SlotError
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.kubelet.client import call_service
from partita.agent.mps.namespaces import namespace_directory, slot_namespace
from partita.agent.mps.report import MPSReport
from partita.agent.mps.slot_limits import slot_of
from partita.models import SharingMode
from partita.pods.allocation import DeviceInjection, device_resource
from partita.pods.environment import SM_PARTITION
from partita.pods.mps_directories import pipe_directory

__all__ = ["DEVICE_PLUGINS", "DevicePlugin", "Slots"]

DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""Directory of the sockets of kubelet and its plugins, independent of kubelet's root directory."""
_KUBELET_SOCKET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_POLL: Final = 1.0
"""Seconds between two checks of the sockets. kubelet deletes all sockets when it starts (page
above, "Device plugin implementation")."""
_CLOSE_DEADLINE: Final = 1.0
"""Seconds for kubelet to close its connection after the plugin has ended all calls."""
_Call: TypeAlias = Stream[Any, Any]
"""One call by kubelet, with its request and response."""
_OPTIONS: Final = api.DevicePluginOptions(
    pre_start_required=True, get_preferred_allocation_available=True
)
_HEALTHY: Final = "Healthy"
_UNHEALTHY: Final = "Unhealthy"


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one GPU that are offered to kubelet.

    Parameters
    ----------
    server
        The GPUServer.
    uuid
        UUID of its GPU.
    count
        Number of containers that may use the GPU at once.
    mode
        How the containers share the GPU.
    injection
        How the GPU's device files are mounted into the containers.
    """

    server: str
    uuid: str
    count: int
    mode: SharingMode
    injection: DeviceInjection

    @property
    def resource(self) -> str:
        """Name of the extended resource."""
        return device_resource(self.uuid)

    @property
    def endpoint(self) -> str:
        """Name of the socket, unique on the node."""
        return f"partita-{self.resource.rpartition('/')[2]}.sock"

    def devices(self, *, healthy: bool) -> api.ListAndWatchResponse:
        """Return all slots in kubelet's format."""
        health = _HEALTHY if healthy else _UNHEALTHY
        base = self.resource.rpartition("/")[2]
        return api.ListAndWatchResponse(
            devices=[api.Device(ID=f"{base}-{n}", health=health) for n in range(self.count)]
        )

    def container(self, device: str, mps: MPSReport | None) -> api.ContainerAllocateResponse:
        """Return the variables, mounts and CDI devices of a container with a slot.

        The pipe directory is mounted under the path in the container's variables. It is writable,
        because a client creates files in it. With protocol 3 it is the directory of the slot's
        namespace, so that the container reaches no other. Its path in the container differs from
        that on the node, as with kai-scheduler/gpu-fractioning (fractioning-manager/fractiond/
        internal/injection/injection.go, `MPSNamespaceMount`), which mounts it at /tmp/nvidia-mps.

        `/dev/shm` is not mounted: each Pod keeps its own, bounded and of mode 1777, and no tenant
        can access the files of another. Clients on Volta and later GPUs do not need the server's
        `/dev/shm`, and the agent shares only these GPUs by MPS. The server maps anonymous memory
        ("Created anonymous shared memory region" in its log, bottlerocket-kernel-kit pull 415) and
        passes it to clients through the pipe directory. kubernetes-sigs/dra-driver-nvidia-gpu
        issue 974 shows the difference: while its daemon did not have the clients' /dev/shm, MPS
        worked on a T4 (Turing) and failed on a P4 (Pascal).
        """
        mounts, variables = [], {}
        if self.mode is SharingMode.MPS:
            pipes, slot = pipe_directory(self.uuid), slot_of(device)
            host = pipes
            if mps is not None and mps.protocol == 3:
                host = str(namespace_directory(Path(pipes), slot_namespace(slot)))
            mounts = [api.Mount(container_path=pipes, host_path=host)]
            if mps is not None and mps.sm_partitions:
                variables[SM_PARTITION] = mps.sm_partitions[slot]
        # The default name of a GPU in `nvidia-ctk cdi generate`:
        # https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
        name = f"nvidia.com/gpu={self.uuid}"
        cdi = [api.CDIDevice(name=name)] if self.injection == "CDI" else []
        return api.ContainerAllocateResponse(envs=variables, mounts=mounts, cdi_devices=cdi)


@dataclass(slots=True)
class DevicePlugin:
    """Serves the slots to kubelet until it is cancelled.

    Parameters
    ----------
    slots
        The slots to offer.
    directory
        Directory of the sockets.
    mps
        Returns what the MPS container has started.
    prepare
        Prepares the slot with a device ID for the container that is about to start.
    prefer
        Returns the devices to give to a container: those available, those required, and how many.
    """

    slots: Slots
    directory: Path
    mps: Callable[[], MPSReport | None]
    prepare: Callable[[str], Awaitable[None]]
    prefer: Callable[[Sequence[str], Sequence[str], int], list[str]]
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the plugin is registered."""
    _healthy: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def set_healthy(self, *, healthy: bool) -> None:
        """Set whether the slots are healthy; kubelet is notified at once."""
        if healthy != self._healthy:
            async with self._changed:
                self._healthy = healthy
                self._changed.notify_all()

    async def run(self) -> None:
        """Serve the slots until cancelled, and register again after each restart of kubelet."""
        log = structlog.get_logger(__name__).bind(resource=self.slots.resource)
        while True:
            server = await self._serve()
            known: tuple[int, int, int] | None = None
            try:
                while (self.directory / self.slots.endpoint).exists():
                    kubelet = _identity(self.directory / _KUBELET_SOCKET)
                    if kubelet is None:
                        self.registered.clear()
                    elif kubelet != known:
                        try:
                            await self._register()
                        except KubeletError as error:
                            self.registered.clear()
                            log.warning("not registered with kubelet", error=str(error))
                        else:
                            known = kubelet
                            self.registered.set()
                            log.info("registered with kubelet", slots=self.slots.count)
                    await asyncio.sleep(_POLL)
                log.info("kubelet has restarted: it removed the socket")
            finally:
                self.registered.clear()
                server.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_DEADLINE):
                        await server.wait_closed()
                with suppress(FileNotFoundError):
                    (self.directory / self.slots.endpoint).unlink()

    async def _serve(self) -> Server:
        path = self.directory / self.slots.endpoint
        path.unlink(missing_ok=True)
        server = Server([self])
        await server.start(path=str(path))
        return server

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the service's methods, for grpclib."""
        service = "/v1beta1.DevicePlugin"
        once, repeated = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            f"{service}/GetDevicePluginOptions": Handler(
                self._options, once, api.Empty, api.DevicePluginOptions
            ),
            f"{service}/ListAndWatch": Handler(
                self._list_and_watch, repeated, api.Empty, api.ListAndWatchResponse
            ),
            f"{service}/GetPreferredAllocation": Handler(
                self._preferred,
                once,
                api.PreferredAllocationRequest,
                api.PreferredAllocationResponse,
            ),
            f"{service}/Allocate": Handler(
                self._allocate, once, api.AllocateRequest, api.AllocateResponse
            ),
            f"{service}/PreStartContainer": Handler(
                self._pre_start_container,
                once,
                api.PreStartContainerRequest,
                api.PreStartContainerResponse,
            ),
        }

    async def _register(self) -> None:
        request = api.RegisterRequest(
            version=_VERSION,
            endpoint=self.slots.endpoint,
            resource_name=self.slots.resource,
            options=_OPTIONS,
        )
        socket = self.directory / _KUBELET_SOCKET
        await call_service(socket, "/v1beta1.Registration/Register", request, api.Empty)

    async def _options(self, call: _Call) -> None:
        await call.send_message(_OPTIONS)

    async def _list_and_watch(self, call: _Call) -> None:
        sent: bool | None = None
        while True:
            async with self._changed:
                while self._healthy == sent:
                    await self._changed.wait()
                sent = self._healthy
            await call.send_message(self.slots.devices(healthy=sent))

    async def _preferred(self, call: _Call) -> None:
        request = await call.recv_message()
        answers = [
            api.ContainerPreferredAllocationResponse(
                deviceIDs=self.prefer(
                    container.available_deviceIDs,
                    container.must_include_deviceIDs,
                    container.allocation_size,
                )
            )
            for container in (request.container_requests if request is not None else ())
        ]
        await call.send_message(api.PreferredAllocationResponse(container_responses=answers))

    async def _allocate(self, call: _Call) -> None:
        request = await call.recv_message()
        if not self._healthy:
            # kubelet may call this before it has received the update.
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"{self.slots.server} accepts no jobs now: see its conditions",
            )
        if request is None:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request is missing")
        mps = self.mps()
        # A container has one slot: the operator requests one device for each.
        containers = [
            self.slots.container(r.devices_ids[0], mps) for r in request.container_requests
        ]
        await call.send_message(api.AllocateResponse(container_responses=containers))

    async def _pre_start_container(self, call: _Call) -> None:
        request = await call.recv_message()
        try:
            for device in request.devices_ids if request is not None else ():
                await self.prepare(device)
        except SlotError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        await call.send_message(api.PreStartContainerResponse())


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Identify the file of a socket; each start of kubelet creates another. None if missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
