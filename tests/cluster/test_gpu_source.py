"""A partition whose GPU comes from NVIDIA's DRA driver, on a true kubelet and scheduler."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster import nvidia_dra_driver
from cluster.cluster import Cluster
from cluster.conftest import SHARED
from cluster.containers import LOOK_AROUND
from cluster.gpus import NodeGPUs
from cluster.jobs import SERVERS, give_back, make_partition, servers
from cluster.nvidia_dra_driver import CLASS, REGISTERED, REGISTRATION, device_class, resource_slice
from cluster.plane import NODE_NAME
from cluster.pods import logs
from cluster.workloads import Workloads, nothing_left
from gpu.fake import MIB, uuid_of
from support.api import Api
from support.polling import poll

RESOURCES = "/apis/resource.k8s.io/v1"
PARTITION = "claimed"
LARGE = 81920
"""MiB of the second GPU, the only one that the partition selects."""


@pytest.fixture
async def dra_driver(partita: Cluster, gpus: NodeGPUs, api: Api) -> AsyncIterator[Cluster]:
    """The node with NVIDIA's DRA driver; no partition has a GPU by it or by a device plugin."""
    whole = gpus.figure("memory")
    await give_back(api, SHARED, 2)
    gpus.add(1, memory=LARGE * MIB)
    folder = partita.slot.folder
    environment = {
        "PYTHONPATH": Path(__file__).parents[1],
        "KUBECONFIG": folder / "kubelet.kubeconfig",
        "FAKE_GPU_DIR": gpus.folder,
        "FAKE_GPU_DRIVER": gpus.built.folder,
    }
    kubelet = Path("/var/lib/kubelet")
    socket = folder / "kubelet" / REGISTRATION.relative_to(kubelet)
    registered = folder / "kubelet" / REGISTERED.relative_to(kubelet)
    partita.node.start(
        "nvidia-dra-driver",
        [
            "env",
            *(f"{name}={value}" for name, value in environment.items()),
            *(sys.executable, "-m", nvidia_dra_driver.__name__),
        ],
        registered.exists,
    )
    figures = {
        gpu: {name: gpus.figure(name, gpu) for name in ("uuid", "name", "memory")}
        for gpu in range(2)
    }
    offered = resource_slice(NODE_NAME, figures)
    (await api.post(f"{RESOURCES}/deviceclasses", device_class())).ok()
    (await api.post(f"{RESOURCES}/resourceslices", offered)).ok()
    yield partita
    await give_back(api, PARTITION, 1)
    await api.delete(f"{RESOURCES}/deviceclasses/{CLASS}")
    await api.delete(f"{RESOURCES}/resourceslices/{offered['metadata']['name']}")
    socket.unlink()
    registered.unlink()
    partita.node.stop("nvidia-dra-driver")
    gpus.add(1, memory=whole)


async def test_a_pod_gets_a_slice_of_the_gpu_that_the_server_pod_has_claimed(
    dra_driver: Cluster, gpus: NodeGPUs, api: Api, restricted: str
):
    selector = {"minMemory": f"{LARGE}Mi"}
    await make_partition(api, PARTITION, 1, gpuSource="DRA", gpuSelector=selector)
    (server,) = await servers(api)
    assert server["status"]["uuid"] == uuid_of(1)
    (of_server,) = await claims(api, SERVERS)
    (device,) = of_server["status"]["allocation"]["devices"]["results"]
    assert (device["driver"], device["device"]) == (CLASS, "gpu-1")

    workloads = Workloads(api, restricted, PARTITION)
    script = f"{LOOK_AROUND}; exec fake-cuda try:1100 alloc:900 forever"
    await workloads.make("Pod", "user", "sh", "-c", script, memory="1Gi")
    await workloads.running("user")
    poll(lambda: [memory for memory, _ in gpus.use(1).values()] == [900 * MIB])
    assert not gpus.use(0)
    said = await logs(api, restricted, "user")
    assert "NVIDIA_VISIBLE_DEVICES=void" in said, "what NVIDIA's driver has set"
    assert "refused: out of memory" in said
    await workloads.delete("Pod", "user")
    await nothing_left(dra_driver, api, restricted)

    await give_back(api, PARTITION, 1)
    await api.until(f"{RESOURCES}/namespaces/{SERVERS}/resourceclaims", lambda c: not c["items"])
    assert not list(dra_driver.cdi.glob("k8s.gpu.nvidia.com-*"))


async def claims(api: Api, namespace: str) -> list[dict[str, Any]]:
    """Return the claims of a namespace for devices of NVIDIA's driver."""
    answer = await api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")
    return [
        claim
        for claim in answer.ok().body["items"]
        for request in claim["spec"]["devices"]["requests"]
        if request["exactly"]["deviceClassName"] == CLASS
    ]
