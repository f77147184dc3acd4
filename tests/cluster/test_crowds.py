"""Many small jobs on one GPU: `studies/containers-and-mps.txt`, `tensorflow-memory-mode.txt`."""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.gpus import NodeGPUs
from cluster.jobs import Carve
from support.api import Api
from support.polling import poll

CROWD_SECONDS = 200
"""For all of a crowd to start: kubelet and containerd take half a second a Pod on 2 cores."""


async def test_25_small_tensorflow_jobs_use_one_gpu_at_once(gpus: NodeGPUs, api: Api, carve: Carve):
    jobs = await carve(40960, sharing={"maxJobsPerGPU": 25})
    steps = [
        "expect:TF_FORCE_GPU_ALLOW_GROWTH=true",
        "expect:CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M",
        "alloc:800",
        "compute:3600000:5",
    ]
    names = [f"small-{number}" for number in range(25)]
    await asyncio.gather(*(jobs.submit(n, *steps, framework="TensorFlow") for n in names))

    def all_run(found: dict[str, Any]) -> bool:
        now = [job.get("status", {}).get("phase") for job in found["items"]]
        return now == ["Running"] * 25

    await api.until(jobs.path(), all_run, seconds=CROWD_SECONDS)
    poll(lambda: len(gpus.pids(0)) + len(gpus.pids(1)) == 25, what="all use it at once")
    found = (await api.get(jobs.path())).ok().body["items"]
    assert [len(job["status"]["attempts"]) for job in found] == [1] * 25
