"""The main job: from committed YAML to running, finished jobs."""

from __future__ import annotations

from support.operator import System, env_of


async def test_jobs_of_a_partition_share_one_gpu_run_and_give_it_back(system: System) -> None:
    async with system.nodes(1), system.operator():
        partition = await system.partition(gpus=1)
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="12Gi", threadPercent=30)
            for i in range(3)
        ]
        for job in jobs:
            await job.succeeds()
        await system.settle()
