"""Jobs that are as large, as long and as strange as the API server lets them be."""

from __future__ import annotations

from partita.constants import MAX_JOB_NAME
from support.operator import System, container

MEGABYTE = 1_000_000


async def test_ten_thousand_variables_reach_the_program_beside_ours(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        env = [{"name": f"SETTING_{n}", "value": str(n)} for n in range(10_000)]
        job = await system.job(
            "settings", partition, gpuMemory="4Gi", containers=[container(env=env)]
        )
        await job.succeeds()
        reached = job.env()
        assert reached.items() >= {one["name"]: one["value"] for one in env}.items()
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in reached


async def test_a_template_of_a_megabyte_runs_as_it_was_written(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        script = "x" * MEGABYTE
        job = await system.job(
            "program", partition, gpuMemory="4Gi", containers=[container(args=[script])]
        )
        small = await system.job("beside", partition, gpuMemory="4Gi")
        await job.succeeds()
        await small.succeeds()
        assert job.made()["spec"]["containers"][0]["args"] == [script]


async def test_a_name_of_the_greatest_length_is_a_job_s_like_any_other(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        name = "n" * MAX_JOB_NAME
        job = await system.job(name, partition, gpuMemory="4Gi")
        await job.succeeds()
        assert job.made()["metadata"]["name"] == f"{name}-1"
        longer = await system.submit(f"{name}n", partition, gpuMemory="4Gi")
        assert longer.status == 422
        assert str(MAX_JOB_NAME) in longer.body["message"]


async def test_text_of_any_script_arrives_unchanged(system: System) -> None:
    text = "größer ✓ 日本語 \u202egnirts a\u0301\U0001f600"
    async with system.running(1):
        partition = await system.partition()
        env = [{"name": "TITLE", "value": text}]
        job = await system.job(
            "texts",
            partition,
            gpuMemory="4Gi",
            application=text[:12],
            containers=[container(env=env, args=[text])],
        )
        await job.succeeds()
        made = job.made()
        assert job.env()["TITLE"] == text
        assert made["spec"]["containers"][0]["args"] == [text]
