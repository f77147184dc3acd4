"""Server Pods whose GPU is allocated by kube-scheduler, from slices as NVIDIA's driver has them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube_scheduler.cluster import CLAIMS, Body, SchedulingCluster
from partita_testcluster.nodes import NodeSpec
from support.api import Api
from support.crds import SERVER_NAMESPACE

CLASS = "gpu.nvidia.com"
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
A100, H200 = "NVIDIA A100-SXM4-40GB", "NVIDIA H200"


def device(number: int, product: str, memory: int) -> Body:
    """A GPU as NVIDIA's driver publishes it: its page "ResourceSlice attributes"."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{number:08x}-0000-0000-0000-000000000000"},
        "productName": {"string": product},
    }
    capacity = {"memory": {"value": f"{memory}Gi"}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": capacity}


@pytest.fixture
async def nvidia(api: Api) -> AsyncIterator[Api]:
    """Removes what a test has installed and published of NVIDIA's driver."""
    yield api
    await api.delete(f"{CLAIMS}/deviceclasses/{CLASS}")
    await api.delete(f"{CLAIMS}/resourceslices?fieldSelector=spec.driver={CLASS}")


async def install(api: Api, node: str, *devices: Body) -> None:
    """Do what the driver's chart and its plugin on a node do."""
    body = {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": SELECTOR}}]}}
    (await api.post(f"{CLAIMS}/deviceclasses", body)).ok()
    spec = {
        "driver": CLASS,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
    }
    slice_ = {"metadata": {"name": f"{node}-{CLASS}"}, "spec": spec}
    (await api.post(f"{CLAIMS}/resourceslices", slice_)).ok()


def held(cluster: SchedulingCluster) -> set[tuple[str, str]]:
    """Node and device of each claim of a server Pod that is allocated and reserved."""
    return {
        (result["pool"], result["device"])
        for claim in cluster.claims()
        if claim["metadata"]["namespace"] == SERVER_NAMESPACE
        and claim.get("status", {}).get("reservedFor")
        for result in claim["status"]["allocation"]["devices"]["results"]
    }


async def says(cluster: SchedulingCluster, partition: str, reason: str) -> Body:
    """Wait until a condition of a partition has this reason; return the status."""
    return await cluster.partition_says(
        partition, lambda s: any(c["reason"] == reason for c in s.get("conditions", ()))
    )


async def test_each_server_pod_gets_a_gpu_of_its_own_that_the_partition_selects_once_there_is_one(
    cluster: SchedulingCluster, nvidia: Api
) -> None:
    async with cluster.nodes(specs=[NodeSpec("dra", gpus=0)]) as (node,), cluster.operator():
        partition = await cluster.partition(
            3, gpuSource="DRA", gpuSelector={"products": ["NVIDIA-H200"], "minMemory": "80Gi"}
        )
        await says(cluster, partition, "GPUSourceMissing")
        gpus = [device(0, A100, 40), device(1, H200, 141), device(2, H200, 141)]
        await install(nvidia, node, *gpus)
        await cluster.history.until(lambda: len(held(cluster)) == 2)
        assert held(cluster) == {(node, "gpu-1"), (node, "gpu-2")}
        said = "2 of 3 GPUs could be allocated"
        status = await cluster.partition_says(partition, lambda s: said in str(s))
        (degraded,) = [c for c in status["conditions"] if c["type"] == "Degraded"]
        assert degraded["reason"] == "InsufficientGPUs"
        assert "spec.gpuSelector.products" in degraded["message"]
        await cluster.scale(partition, 0)
        await cluster.history.until(lambda: not held(cluster))
