"""The Events of a job's normal life, as `kubectl describe sgj` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.system import System


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
