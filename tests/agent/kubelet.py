"""A kubelet for device plugins: takes registrations, watches slots, asks for them."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from partita.agent.kubelet import kubelet_pb2 as api
from support.polling import until

__all__ = ["Kubelet"]

DEADLINE = 10


@dataclass
class Kubelet:
    """One kubelet's device manager and PodResources server, in a folder."""

    folder: Path
    refuse: str = ""
    refusals: int = 0
    """Answer registrations with this error."""
    registrations: list[Any] = field(default_factory=list)
    pods: list[Any] = field(default_factory=list)
    """What the PodResources API tells."""
    _server: grpc.aio.Server | None = None
    _channels: list[grpc.aio.Channel] = field(default_factory=list)

    @property
    def plugins(self) -> Path:
        return self.folder / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        return self.folder / "pod-resources" / "kubelet.sock"

    async def start(self) -> None:
        """Start, and as kubelet does delete all sockets of plugins first."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.glob("*.sock"):
            path.unlink()
        self.pod_resources.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "v1beta1.Registration",
                    {
                        "Register": grpc.unary_unary_rpc_method_handler(
                            self._register,
                            api.RegisterRequest.FromString,
                            api.Empty.SerializeToString,
                        )
                    },
                ),
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
        server.add_insecure_port(f"unix://{self.plugins / 'kubelet.sock'}")
        server.add_insecure_port(f"unix://{self.pod_resources}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        for channel in self._channels:
            await channel.close()
        self._channels.clear()
        gc.collect()  # the error of a failed call keeps its connection
        await until(lambda: not self._is_connected())
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def _is_connected(self) -> bool:
        """Whether a plugin still has a connection of kubelet: proc_pid_net(5), `unix`."""
        endpoint = str(self.plugins / "partita-")
        sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        return any(words[-1].startswith(endpoint) and words[5] == "03" for words in sockets)

    def gives(
        self,
        pod: str,
        *devices: str,
        namespace: str = "partita-system",
        container_name: str = "agent",
        resource: str = "nvidia.com/gpu",
    ) -> None:
        """Tell that a Pod got these devices."""
        got = api.ContainerDevices(resource_name=resource, device_ids=devices)
        container = api.ContainerResources(name=container_name, devices=[got])
        self.pods.append(api.PodResources(name=pod, namespace=namespace, containers=[container]))

    def gives_claimed(
        self, pod: str, cdi_device: str, *, namespace: str, driver: str = "gpu.nvidia.com"
    ) -> None:
        """Tell that a Pod got this device by a claim."""
        device = api.ClaimResource(driver_name=driver, cdi_devices=[api.CDIDevice(name=cdi_device)])
        dynamic = api.DynamicResource(claim_resources=[device])
        containers = [
            api.ContainerResources(name=name, dynamic_resources=[dynamic])
            for name in ("mps", "agent")
        ]
        self.pods = [found for found in self.pods if found.name != pod]
        self.pods.append(api.PodResources(name=pod, namespace=namespace, containers=containers))

    def takes_back(self, pod: str) -> None:
        """Tell that a Pod is gone."""
        self.pods = [found for found in self.pods if found.name != pod]

    async def _register(self, request: Any, context: Any) -> Any:
        if self.refuse:
            self.refusals += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse)
        self.registrations.append(request)
        return api.Empty()

    async def _list(self, _request: Any, _context: Any) -> Any:
        return api.ListPodResourcesResponse(pod_resources=self.pods)

    async def registered(self, count: int = 1) -> Any:
        """Wait for so many registrations; return the last."""
        await until(lambda: len(self.registrations) >= count)
        return self.registrations[-1]

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(f"unix://{self.plugins / endpoint}")
        self._channels.append(channel)
        return channel

    def watch(self, endpoint: str) -> Any:
        """Watch a plugin's devices."""
        call = self._channel(endpoint).unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        return call(api.Empty())

    async def allocate(self, endpoint: str, *containers: list[str]) -> Any:
        """Ask a plugin for devices."""
        call = self._channel(endpoint).unary_unary(
            "/v1beta1.DevicePlugin/Allocate",
            request_serializer=api.AllocateRequest.SerializeToString,
            response_deserializer=api.AllocateResponse.FromString,
        )
        requests = [api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        return await call(api.AllocateRequest(container_requests=requests), timeout=DEADLINE)

    async def prefer(self, endpoint: str, available: list[str], count: int) -> list[str]:
        """Ask a plugin which of these devices a container should get."""
        call = self._channel(endpoint).unary_unary(
            "/v1beta1.DevicePlugin/GetPreferredAllocation",
            request_serializer=api.PreferredAllocationRequest.SerializeToString,
            response_deserializer=api.PreferredAllocationResponse.FromString,
        )
        wanted = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, allocation_size=count
        )
        request = api.PreferredAllocationRequest(container_requests=[wanted])
        (answer,) = (await call(request, timeout=DEADLINE)).container_responses
        return list(answer.deviceIDs)

    async def pre_start(self, endpoint: str, *devices: str) -> None:
        """Tell a plugin that a container with these devices is about to start."""
        call = self._channel(endpoint).unary_unary(
            "/v1beta1.DevicePlugin/PreStartContainer",
            request_serializer=api.PreStartContainerRequest.SerializeToString,
            response_deserializer=api.PreStartContainerResponse.FromString,
        )
        # 30 s: KubeletPreStartContainerRPCTimeoutInSecs in k8s.io/kubelet.
        await call(api.PreStartContainerRequest(devices_ids=devices), timeout=30)

    async def options(self, endpoint: str) -> Any:
        call = self._channel(endpoint).unary_unary(
            "/v1beta1.DevicePlugin/GetDevicePluginOptions",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.DevicePluginOptions.FromString,
        )
        return await call(api.Empty(), timeout=DEADLINE)


def health_of(answer: Any) -> dict[str, str]:
    """Health by device."""
    return {device.ID: device.health for device in answer.devices}
