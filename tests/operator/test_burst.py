"""Memory above the guarantee: who gets it, and what becomes of a job whose memory is reclaimed."""

from __future__ import annotations

from pathlib import Path

import yaml

from partita_testcluster.nodes import NodeSpec
from support.job import Job
from support.queues import LONG
from support.system import GIB, System

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
SPARE = {"burst": "Spare"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "burst"


def events(system: System, job: Job, reason: str) -> list[str]:
    return [
        versions[0].body["message"]
        for versions in system.history.lives("events")
        if versions[0].body["involvedObject"]["name"] == job.name
        and versions[0].body["reason"] == reason
    ]


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
