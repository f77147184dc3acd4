"""The agent is told that MPS must terminate a Pod's clients before kubelet is told to end the Pod.

The simulated kubelet ends a Pod at once, without its grace period. A finalizer keeps the Pod where
a test needs it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from support.behind_proxy import Behind
from support.clusters import ApiServer
from support.operator_process import Forge
from support.polling import TIMEOUT, until
from support.proxy import FaultProxy, When, unavailable
from support.queues import LONG
from support.requests import Request
from support.system import System


def is_mark(request: Request) -> bool:
    return request.kind == "PATCH gpuservers/status" and b"releasingSince" in request.body


def since_of(request: Request) -> str:
    """Return when the release that a mark tells of began."""
    (entry,) = json.loads(request.body)["status"]["allocations"].values()
    return entry["releasingSince"]


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


async def test_the_operator_killed_after_the_mark_ends_the_pod_after_its_restart(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> None:
    async with FaultProxy(api_server, serial=True) as proxy, system.nodes(1):
        kubeconfig, log = proxy.write_kubeconfig(tmp_path), tmp_path / "log"
        first = await forge.start(kubeconfig, log, identity="crash")
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        fault = proxy.inject(is_mark, when=When.AFTER, hook=proxy.killing(first.pid))
        (await job.change(suspend=True)).ok()
        await asyncio.wait_for(asyncio.shield(first.ended), TIMEOUT)
        assert fault.happened
        proxy.remove(fault)
        second = await forge.start(kubeconfig, log, identity="crash")
        await job.phase("Suspended")
        await system.history.until(lambda: job.pod() is None)
        await system.history.until(
            lambda: not system.servers(partition)[0]["status"].get("allocations")
        )
        taken = [w.request for w in proxy.writes if w.took_effect]
        ends = [is_mark(request) for request in taken if is_mark(request) or is_end(request)]
        assert ends[:2] == [True, False]
        # The mark follows a grace period that kubelet shortens, but it tells of one release.
        assert len({since_of(request) for request in taken if is_mark(request)}) == 1
        assert job.outcomes == ["Suspended"]
        await second.stop()
