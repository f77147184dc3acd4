"""The agent is told that MPS must terminate a Pod's clients before kubelet is told to end the Pod."""

from __future__ import annotations

from support.behind_proxy import Behind
from support.faults import unavailable
from support.polling import until
from support.queues import LONG
from support.requests import Request
from support.system import System


def is_mark(request: Request) -> bool:
    return request.kind == "PATCH gpuservers/status" and b"releasingSince" in request.body


def is_end(request: Request) -> bool:
    return request.kind == "DELETE pods"


async def test_a_mark_that_cannot_be_written_delays_the_end_and_is_tried_again(
    system: System, behind: Behind
) -> None:
    system.set_times(retry_mark=0.1)
    async with behind() as proxy:
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        fault = proxy.inject(is_mark, times=None, answer=unavailable())
        (await job.change(suspend=True)).ok()
        await until(lambda: fault.happened)
        assert not any(is_end(w.request) for w in proxy.writes)
        proxy.remove(fault)
        await job.phase("Suspended")
        await system.history.until(lambda: job.pod() is None)
