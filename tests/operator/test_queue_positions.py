"""Positions of jobs that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.queues import LONG

if TYPE_CHECKING:
    from support.system import System


async def test_positions_follow_the_queue_without_gaps(system: System) -> None:
    system.set_times(refresh=0.5)
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        runs = await system.job("runs", partition, gpuMemory="30Gi", sim=LONG)
        await runs.runs()
        never = await system.job("never", partition, gpuMemory="400Gi")
        await never.until(lambda s: s.get("reason") == "NeverFits")
        waiting = []
        for number in range(1, 4):
            job = await system.job(f"waits-{number}", partition, gpuMemory="30Gi", sim=LONG)
            await job.until(lambda s, number=number: s.get("queuePosition") == number)
            waiting.append(job)
        assert "queuePosition" not in never.status
        await waiting[0].delete()
        # Nothing else happens: only the operator itself can close the gap.
        for position, job in enumerate(waiting[1:], start=1):
            await job.until(lambda s, position=position: s.get("queuePosition") == position)
