"""A job that is as large and as strange as the API server lets it be."""

from __future__ import annotations

from partita.constants import MAX_JOB_NAME
from support.job import container
from support.system import System

MEGABYTE = 1_000_000
TEXT = "größer ✓ 日本語 \u202egnirts a\u0301\U0001f600"


async def test_a_megabyte_of_any_script_under_the_longest_name_runs_as_it_was_written(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        name, args = "n" * MAX_JOB_NAME, ["x" * MEGABYTE, TEXT]
        containers = [container(args=args, env=[{"name": "TITLE", "value": TEXT}])]
        job = await system.job(
            name, partition, gpuMemory="4Gi", application=TEXT[:12], containers=containers
        )
        small = await system.job("beside", partition, gpuMemory="4Gi")
        await job.succeeds()
        await small.succeeds()
        assert job.made()["spec"]["containers"][0]["args"] == args
        assert job.env()["TITLE"] == TEXT
        longer = await system.submit(f"{name}n", partition, gpuMemory="4Gi")
        assert longer.status == 422
        assert str(MAX_JOB_NAME) in longer.body["message"]
