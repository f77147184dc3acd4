"""Memory above the guarantee: who gets it, and what becomes of a job whose memory is reclaimed."""

from __future__ import annotations

from pathlib import Path

import yaml

from partita_testcluster.nodes import NodeSpec
from support.operator import GIB, Job, System
from support.queues import LONG

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
R580 = NodeSpec("r580", 1, 40 * GIB)
SPARE = {"burst": "Spare"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "burst"
REQUEST, LIMIT = "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"


def events(system: System, job: Job, reason: str) -> list[str]:
    return [
        versions[0].body["message"]
        for versions in system.history.lives("events")
        if versions[0].body["involvedObject"]["name"] == job.name
        and versions[0].body["reason"] == reason
    ]


async def test_a_job_uses_memory_above_its_guarantee_while_nobody_needs_it(system: System) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition(sharing=SPARE)
        job = await system.job(
            "borrower", partition, gpuMemory="8Gi", gpuMemoryLimit="30Gi", sim={"memory": "26Gi"}
        )
        status = await job.succeeds()
        assert job.outcomes == ["Succeeded"]
        env = job.env()
        assert (env[REQUEST], env[LIMIT]) == (str(8192 + 512), str(30 * 1024 + 512))
        assert (status["attempts"][0]["memory"], status["attempts"][0]["memoryLimit"]) == (
            "8Gi", "30Gi",
        )  # fmt: skip


async def test_a_job_that_borrows_makes_way_and_in_the_end_gets_its_memory_guaranteed(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition(sharing=SPARE)
        borrower = await system.job(
            "borrower",
            partition,
            gpuMemory="8Gi",
            gpuMemoryLimit="30Gi",
            retry={"limit": 0, "outOfMemory": {"limit": 0}},
            sim={"memory": "26Gi"} | LONG,
        )
        await borrower.runs()
        entitled = await system.job(
            "entitled", partition, gpuMemory="20Gi", sim={"memory": "20Gi"} | LONG
        )
        await entitled.runs()
        await borrower.waits("InsufficientMemory", "needs 29.1 GiB of GPU memory")
        assert borrower.outcomes == ["Reclaimed"] * 3
        assert borrower.memories == ["8Gi"] * 3
        evicted, refused, _ = borrower.status["attempts"]
        assert (
            "another job needed the memory that it used above its guarantee" in evicted["message"]
        )
        assert "no spare memory was left" in refused["message"]
        assert entitled.outcomes == [""]
        (server,) = system.servers(partition)
        assert [a["name"] for a in server["status"]["allocations"].values()] == [entitled.name]


async def test_a_reclaimed_job_is_first_in_the_queue(system: System) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition(sharing=SPARE)
        borrower = await system.job(
            "borrower", partition, gpuMemory="15Gi", gpuMemoryLimit="30Gi",
            sim={"memory": "26Gi"} | LONG,
        )  # fmt: skip
        await borrower.runs()
        waiting = [
            await system.job(f"waiting-{n}", partition, gpuMemory="36Gi", sim=LONG)
            for n in range(2)
        ]
        await waiting[-1].waits("InsufficientMemory")
        entitled = await system.job(
            "entitled", partition, gpuMemory="20Gi", priority=1, sim={"memory": "20Gi"} | LONG
        )
        await entitled.runs()
        await borrower.waits("InsufficientMemory")
        assert borrower.status["queuePosition"] == 1
        await waiting[0].until(lambda s: s.get("queuePosition") == 2)


async def test_where_the_driver_sets_no_limits_a_job_gets_its_guarantee_and_is_told(
    system: System,
) -> None:
    async with system.running(specs=[R580]):
        partition = await system.partition(sharing=SPARE)
        job = await system.job("train", partition, gpuMemory="8Gi", gpuMemoryLimit="30Gi")
        status = await job.succeeds()
        assert "memoryLimit" not in status["attempts"][0]
        assert job.env()["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
        await system.history.until(lambda: events(system, job, "BurstNotAvailable"))
        (said,) = events(system, job, "BurstNotAvailable")
        assert said == (
            f"gpuMemoryLimit has no effect on {partition}-0: the driver does not limit memory there "
            "(see the condition DriverLimits of the GPUServer), so the job is limited to 8.0 GiB"
        )


async def test_in_a_partition_without_burst_a_job_gets_its_guarantee_and_is_told(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="8Gi", gpuMemoryLimit="30Gi")
        await job.succeeds()
        env = job.env()
        assert env[REQUEST] == env[LIMIT] == str(8192 + 512)
        await system.history.until(lambda: events(system, job, "BurstNotAvailable"))
        (said,) = events(system, job, "BurstNotAvailable")
        assert f"partition {partition} has sharing.burst Never, so the job is limited to" in said


async def test_the_jobs_of_the_example_end_as_it_says(system: System) -> None:
    async with system.running(specs=[R615]):
        spec = yaml.safe_load((EXAMPLE / "partition.yaml").read_text())["spec"]
        del spec["allowedNamespaces"]
        partition = await system.partition(**spec)
        sweep, training = [
            await system.job(
                body["metadata"]["name"],
                partition,
                sim=_sim(body["spec"]["template"]["metadata"]["annotations"]),
                **{k: v for k, v in body["spec"].items() if k.startswith("gpuMemory")},
            )
            for body in yaml.safe_load_all((EXAMPLE / "jobs.yaml").read_text())
        ]
        await training.succeeds()
        await sweep.succeeds()
        assert training.outcomes == ["Succeeded"]
        assert sweep.outcomes[0] == "Reclaimed"
        assert set(sweep.outcomes[:-1]) == {"Reclaimed"}


def _sim(annotations: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("sim.partita.dev/"): value for name, value in annotations.items()}
