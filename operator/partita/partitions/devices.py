"""The DeviceClasses and ResourceSlices of a partition: what claims can ask for. No I/O."""

from collections.abc import Sequence
from typing import Any, Final

from partita.constants import (
    ALLOCATOR_TAINT,
    CAPACITY_MEMORY,
    CAPACITY_THREADS,
    DEVICE,
    DRIVER,
    PART_OF,
)
from partita.models import GPUPartition, GPUServer
from partita.models.device_class import device_class_of
from partita.models.quantities import format_memory

__all__ = ["PROBE_SLICE", "desired_classes", "desired_slices", "keeps_taints"]

Json = dict[str, Any]

_MAX_TEXT: Final = 64
"""Longest attribute value (`DeviceAttributeMaxValueLength` in k8s.io/api, resource/v1)."""
_TAINT: Final = {"key": ALLOCATOR_TAINT, "effect": "NoSchedule"}

PROBE_SLICE: Final[Json] = {
    "metadata": {"name": f"probe.{DRIVER}", "labels": PART_OF},
    "spec": {
        "driver": DRIVER,
        "allNodes": True,
        "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": DEVICE, "taints": [_TAINT]}],
    },
}
"""A slice that is never stored. What the API server would keep of it says what it supports."""


def keeps_taints(kept: Json) -> bool:
    """Return whether the API server keeps the taints of devices, which older ones drop.

    Parameters
    ----------
    kept
        The API server's version of `PROBE_SLICE`.
    """
    return any(device.get("taints") for device in kept["spec"].get("devices") or ())


def desired_classes(partition: GPUPartition, *, tainted: bool) -> dict[str, Json]:
    """Return the device classes of a partition and of its fixed slices, by name.

    Parameters
    ----------
    tainted
        Whether the taint of the devices prevents kube-scheduler from allocating them. If not, the
        classes select no device, because kube-scheduler knows neither the queue nor the policy.
        An allocation by the operator does not need the selector.
    """
    name = partition.metadata.name
    expression = "false"
    if tainted:
        attributes = f'device.attributes["{DRIVER}"]'
        expression = f'device.driver == "{DRIVER}" && {attributes}.partition == "{name}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {
        class_name: {"metadata": _metadata(class_name, partition), "spec": spec}
        for class_name in (
            device_class_of(name),
            *(device_class_of(name, one.name) for one in partition.spec.slices),
        )
    }


def desired_slices(partition: GPUPartition, servers: Sequence[GPUServer]) -> dict[str, Json]:
    """Return a resource slice for each GPU of a partition that is ready, by name."""
    ready = (s for s in servers if s.status.holds("Ready") and not s.metadata.deletion_timestamp)
    found = (_resource_slice(server, partition) for server in ready if server.status.node)
    return {one["metadata"]["name"]: one for one in found}


def _resource_slice(server: GPUServer, partition: GPUPartition) -> Json:
    name, status = server.metadata.name, server.status
    memory = partition.spec.allocatable(status.memory)
    return {
        "metadata": _metadata(f"{name}.{DRIVER}", server),
        "spec": {
            "driver": DRIVER,
            "nodeName": status.node,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": DEVICE,
                    "attributes": {
                        "partition": {"string": partition.metadata.name},
                        "product": {"string": status.product[:_MAX_TEXT]},
                        "uuid": {"string": status.uuid[:_MAX_TEXT]},
                    },
                    "allowMultipleAllocations": True,
                    "capacity": {
                        CAPACITY_MEMORY: {"value": format_memory(memory)},
                        CAPACITY_THREADS: {"value": "100"},
                    },
                    "taints": [_TAINT],
                }
            ],
        },
    }


def _metadata(name: str, owner: GPUPartition | GPUServer) -> Json:
    return {"name": name, "labels": PART_OF, "ownerReferences": [owner.owner_reference()]}
