"""The Events of a job's normal life, as `kubectl describe sgj` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.operator import System


async def test_a_job_that_succeeds_has_events_for_its_gpu_and_its_end(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        job = await system.job("train", partition, gpuMemory="4Gi", sim={"duration": "2s"})
        await job.succeeds()
        node = job.status["assignment"]["node"]
        expected = [
            (
                "Scheduled",
                f"attempt 1 gets 4.0 GiB on {partition}-0 (node {node}), chosen by policy fifo",
            ),
            ("Finished", "attempt 1 succeeded"),
        ]
        await system.history.until(
            lambda: len(system.history.events("train")) >= len(expected),
            what=lambda: system.history.events("train"),
        )
        assert system.history.events("train") == expected


async def test_a_job_that_runs_out_of_memory_has_an_event_for_that_and_for_each_attempt(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job(
            "train",
            partition,
            gpuMemory="1Gi",
            sim={"memory": "3Gi", "duration": "1s"},
            retry={"outOfMemory": {"limit": 0}},
        )
        await job.fails()
        await system.history.until(
            lambda: "Finished" in dict(system.history.events("train")),
            what=lambda: system.history.events("train"),
        )
        events = dict(system.history.events("train"))
        node = job.status["assignment"]["node"]
        assert events["OutOfMemory"].startswith(f"attempt 1 on {node}: ")
        assert "out of memory" in events["OutOfMemory"]
        assert events["Finished"].startswith(
            "the job failed, OutOfMemory: it ran out of GPU memory 1 times"
        )
