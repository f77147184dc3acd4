"""A partition whose whole GPUs come from NVIDIA's driver for dynamic resource allocation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.api import Api
from support.crds import SERVER_NAMESPACE
from support.system import System

RESOURCES = "/apis/resource.k8s.io/v1"
CLASS = "gpu.nvidia.com"

Body = dict[str, Any]


def device_class() -> Body:
    """The class that NVIDIA's driver is installed with."""
    expression = "device.driver == 'gpu.nvidia.com'"
    return {
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def resource_slice(node: str) -> Body:
    """What NVIDIA's driver publishes of a node with one GPU."""
    return {
        "metadata": {"name": f"{node}-gpu.nvidia.com"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
        },
    }


@pytest.fixture
async def nvidia(api: Api) -> AsyncIterator[Api]:
    """Removes what a test has installed of NVIDIA's driver."""
    yield api
    for path in (f"deviceclasses/{CLASS}", "resourceslices/node-gpu.nvidia.com"):
        await api.delete(f"{RESOURCES}/{path}")


def missing(*words: str) -> Any:
    """Whether a partition's status says that its GPUs cannot be claimed, in these words."""

    def holds(status: Body) -> bool:
        return any(
            (c["type"], c["status"], c["reason"]) == ("Degraded", "True", "GPUSourceMissing")
            and all(word in c["message"] for word in words)
            for c in status.get("conditions", ())
        )

    return holds


async def test_server_pods_are_made_with_a_claim_once_the_driver_is_installed(
    system: System, nvidia: Api
) -> None:
    async with system.running(1):
        partition = await system.partition(gpuSource="DRA", gpuSelector={"minMemory": "40Gi"})
        await system.partition_says(partition, missing())
        (await nvidia.post(f"{RESOURCES}/deviceclasses", device_class())).ok()
        (await nvidia.post(f"{RESOURCES}/resourceslices", resource_slice("node"))).ok()
        pod = await system.history.until(
            lambda: system.history.get("pods", f"{partition}-0", SERVER_NAMESPACE)
        )
        (claim,) = pod["spec"]["resourceClaims"]
        path = f"{RESOURCES}/namespaces/{SERVER_NAMESPACE}/resourceclaimtemplates"
        template = (await nvidia.get(f"{path}/{claim['resourceClaimTemplateName']}")).ok().body
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == CLASS
        await system.partition_says(partition, lambda s: not missing()(s))
