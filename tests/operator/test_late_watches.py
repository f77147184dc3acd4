"""The operator sees one kind of object later than the others, as from a busy API server.

It watches each kind separately, so changes of several kinds may reach it in any order.
"""

from __future__ import annotations

import pytest

from support.behind_proxy import Behind
from support.queues import LONG
from support.system import System
from support.workloads import delete, submit

LATE = 0.25
"""Seconds."""


@pytest.mark.parametrize(
    "kind", ["gpupartitions", "gpuservers", "sharedgpujobs", "pods", "resourceclaims", "nodes"]
)
async def test_whatever_is_seen_late_all_run_and_no_gpu_is_overfull(
    system: System, behind: Behind, kind: str
) -> None:
    async with behind(1, 1) as proxy:
        proxy.delay_watches(kind, LATE)
        partition = await system.partition(gpus=2, maxPriority=5, preemption="LowerPriority")
        jobs = [await system.job(f"train-{i}", partition, gpuMemory="15Gi") for i in range(4)]
        serve = await submit(system, "serve", partition, memory="15Gi")
        for job in jobs:
            await job.succeeds()
        await serve.runs()
        victims = [
            await system.job(f"victim-{i}", partition, gpuMemory="15Gi", sim=LONG) for i in range(3)
        ]
        for victim in victims:
            await victim.runs()
        await delete(serve)
        await victims[0].delete()
        (await victims[1].change(suspend=True)).ok()
        urgent = await system.job("urgent", partition, gpuMemory="36Gi", priority=5)
        await urgent.succeeds()
        await system.scale(partition, 1)
        last = await system.job("last", partition, gpuMemory="15Gi")
        await last.succeeds()
