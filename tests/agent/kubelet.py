"""A kubelet: registers the plugins of DRA drivers, and says which devices Pods have."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from partita.agent.kubelet import kubelet_pb2 as api
from support.polling import TIMEOUT, until

__all__ = ["Kubelet"]

_POLL = 0.02
_REGISTRATION = "/pluginregistration.Registration"


@dataclass
class Kubelet:
    """One kubelet's plugin watcher and PodResources server, in a folder."""

    folder: Path
    refuse: str = ""
    """Answer registrations with this error."""
    registrations: list[Any] = field(default_factory=list)
    """What plugins have said who they are."""
    pods: list[Any] = field(default_factory=list)
    """What the PodResources API tells."""
    _server: grpc.aio.Server | None = None
    _watcher: asyncio.Task[None] | None = None

    @property
    def plugins(self) -> Path:
        return self.folder / "plugins_registry"

    @property
    def pod_resources(self) -> Path:
        return self.folder / "pod-resources" / "kubelet.sock"

    async def start(self) -> None:
        """Start."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        self.pod_resources.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "v1.PodResourcesLister",
                    {
                        "List": grpc.unary_unary_rpc_method_handler(
                            self._list,
                            api.Empty.FromString,
                            api.ListPodResourcesResponse.SerializeToString,
                        )
                    },
                ),
            )
        )
        server.add_insecure_port(f"unix://{self.pod_resources}")
        await server.start()
        self._server = server
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def gives(self, pod: str, *devices: str, namespace: str = "partita-system") -> None:
        """Tell that a Pod got these devices."""
        got = api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=devices)
        container = api.ContainerResources(name="agent", devices=[got])
        self.pods.append(api.PodResources(name=pod, namespace=namespace, containers=[container]))

    async def registered(self) -> Any:
        """Wait for a plugin; return who it said it is."""
        await until(lambda: self.registrations)
        return self.registrations[-1]

    async def _list(self, _request: Any, _context: Any) -> Any:
        return api.ListPodResourcesResponse(pod_resources=self.pods)

    async def _watch(self) -> None:
        """Register each new socket, again if that fails, as the plugin manager of kubelet does."""
        known: dict[Path, tuple[int, int]] = {}
        while True:
            # A new socket may have the inode of the one that it replaces.
            found: dict[Path, tuple[int, int]] = {}
            for path in self.plugins.glob("*.sock"):
                with contextlib.suppress(FileNotFoundError):
                    found[path] = (path.stat().st_ino, path.stat().st_ctime_ns)
            for path, identity in list(found.items()):
                if known.get(path) != identity:
                    try:
                        await self._register(path)
                    except grpc.aio.AioRpcError:  # it does not listen yet, or not any more
                        del found[path]
            known = found
            await asyncio.sleep(_POLL)

    async def _register(self, path: Path) -> None:
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            ask = channel.unary_unary(
                f"{_REGISTRATION}/GetInfo",
                request_serializer=api.Empty.SerializeToString,
                response_deserializer=api.PluginInfo.FromString,
            )
            info = await ask(api.Empty(), timeout=TIMEOUT)
            tell = channel.unary_unary(
                f"{_REGISTRATION}/NotifyRegistrationStatus",
                request_serializer=api.RegistrationStatus.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            status = api.RegistrationStatus(plugin_registered=not self.refuse, error=self.refuse)
            await tell(status, timeout=TIMEOUT)
        self.registrations.append(info)
