"""Many small jobs on one GPU: `studies/containers-and-mps.txt`, `tensorflow-memory-mode.txt`."""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.gpus import NodeGPUs
from cluster.jobs import Carve, Jobs
from support.api import Api
from support.polling import poll

CROWD_SECONDS = 200
"""For all of a crowd to start: kubelet and containerd take half a second a Pod on 2 cores."""


async def phases(api: Api, jobs: Jobs) -> list[dict[str, Any]]:
    """Return the status of every job."""
    found = (await api.get(jobs.path())).ok().body["items"]
    return [job.get("status", {}) for job in found]


async def settled(api: Api, jobs: Jobs, *, running: int, queued: int, why: str) -> None:
    """Wait until so many jobs run, and so many wait and say why; none has been tried in vain."""

    def holds(found: dict[str, Any]) -> bool:
        now = [job.get("status", {}) for job in found["items"]]
        waiting = [status for status in now if status.get("phase") == "Queued"]
        running_now = sum(status.get("phase") == "Running" for status in now)
        return (
            (running_now, len(waiting)) == (running, queued)
            and all(why in status["message"] for status in waiting)
            and not any(status.get("attempts") for status in waiting)
        )

    await api.until(jobs.path(), holds, seconds=CROWD_SECONDS)


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
    await settled(api, jobs, running=25, queued=0, why="")
    poll(lambda: len(gpus.pids(0)) + len(gpus.pids(1)) == 25, what="all use it at once")
    assert [len(status["attempts"]) for status in await phases(api, jobs)] == [1] * 25


async def test_of_60_time_sliced_jobs_those_within_93_percent_run_and_the_rest_say_why_not(
    gpus: NodeGPUs, api: Api, carve: Carve
):
    """98 MiB each on a GPU of 6 GiB, of which 5713 MiB may be allocated: 58 jobs."""
    jobs = await carve(6144, sharing={"mode": "TimeSlicing", "maxJobsPerGPU": 60})
    names = [f"slice-{number}" for number in range(60)]
    await asyncio.gather(*(jobs.submit(n, "alloc:90", "forever", memory="98Mi") for n in names))
    await settled(api, jobs, running=58, queued=2, why="memory")
    poll(lambda: len(gpus.pids(0)) + len(gpus.pids(1)) == 58)
    tried = [len(status.get("attempts", [])) for status in await phases(api, jobs)]
    assert sorted(tried) == [0] * 2 + [1] * 58, "none has failed"
