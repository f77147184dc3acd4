"""Finds the container that has a device, from kubelet."""

from dataclasses import dataclass
from pathlib import Path

from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.kubelet.client import call_service

__all__ = ["DeviceHolder", "device_holders"]


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A container that has a device of a plugin."""

    namespace: str
    pod: str
    container: str


async def device_holders(socket: Path, resource: str) -> dict[str, DeviceHolder]:
    """Return the containers on this node with devices of a resource, by device ID.

    Parameters
    ----------
    socket
        Socket of the PodResources API
        (https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
        "Monitoring device plugin resources").

    Raises
    ------
    KubeletError
        kubelet does not answer.
    """
    answer = await call_service(
        socket, "/v1.PodResourcesLister/List", api.Empty(), api.ListPodResourcesResponse
    )
    return {
        device: DeviceHolder(pod.namespace, pod.name, container.name)
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource
        for device in devices.device_ids
    }
