"""How CDI brings a GPU's files into a job's container."""

from __future__ import annotations

import json

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, servers
from gpu.fake import uuid_of
from support.api import Api


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
