"""The ways by which a GPU's files reach a job's container, as its partition says."""

from __future__ import annotations

import json

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, servers
from gpu.fake import uuid_of
from support.api import Api

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def test_by_cdi_a_job_gets_what_the_name_of_its_gpu_stands_for(
    cluster: Cluster, gpus: NodeGPUs, api: Api, carve: Carve
):
    """The names are those that NVIDIA's `nvidia-ctk cdi generate` writes into such a file."""
    cluster.cdi.mkdir(exist_ok=True)
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": uuid_of(gpu), "containerEdits": {"env": [f"BY_CDI={uuid_of(gpu)}"]}}
            for gpu in range(2)
        ],
    }
    (cluster.cdi / "nvidia.json").write_text(json.dumps(specification))
    jobs = await carve(deviceInjection="CDI")
    (server,) = await servers(api)
    await jobs.submit("train", f"expect:BY_CDI={server['status']['uuid']}", "alloc:900")
    await jobs.reaches("train", "Succeeded")


async def test_by_runtime_class_servers_and_jobs_run_under_nvidias(
    cluster: Cluster, gpus: NodeGPUs, api: Api, carve: Carve
):
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    (await api.post(RUNTIME_CLASSES, body)).ok()
    try:
        jobs = await carve(deviceInjection="RuntimeClass")
        await jobs.submit("train", "alloc:900", "compute:200")
        await jobs.reaches("train", "Succeeded")
        pod = (await api.get(jobs.pod_path("train-1"))).ok().body
        assert pod["spec"]["runtimeClassName"] == "nvidia"
    finally:
        await api.delete(f"{RUNTIME_CLASSES}/nvidia")
