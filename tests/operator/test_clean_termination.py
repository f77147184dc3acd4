"""The agent is told that MPS must terminate a Pod's clients before kubelet is told to end the Pod.

The simulated kubelet ends a Pod at once, without its grace period. A finalizer keeps the Pod where
a test needs it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.behind_proxy import Behind
from support.clusters import ApiServer
from support.operator import Job, System
from support.operator_process import Forge
from support.polling import TIMEOUT, until
from support.proxy import FaultProxy, When, unavailable
from support.requests import Request

LONG = {"duration": "20h"}
HELD = {"metadata": {"finalizers": ["example.org/hold"]}}
CLOCKS = timedelta(seconds=2)
"""What the operator's clock may differ from the API server's."""
FREE: dict[str, Any] = {"metadata": {"finalizers": None}}


def is_mark(request: Request) -> bool:
    return request.kind == "PATCH gpuservers/status" and b"releasingSince" in request.body


def since_of(request: Request) -> str:
    """Return when the release that a mark tells of began."""
    (entry,) = json.loads(request.body)["status"]["allocations"].values()
    return entry["releasingSince"]


def is_end(request: Request) -> bool:
    return request.kind == "DELETE pods"


def mark_of(system: System, job: Job, partition: str) -> dict[str, Any]:
    """What the ledger says of the end of a job's Pod."""
    (server,) = system.servers(partition)
    uid = job.body["metadata"]["uid"] if job.body else ""
    entries = server["status"].get("allocations") or {}
    found = entries.get(uid) or next(iter(entries.values()), {})
    return {k: v for k, v in found.items() if k in {"releasingSince", "releaseDeadline", "memory"}}


async def hold(system: System, name: str) -> str:
    """Keep a Pod from going; return its path."""
    path = f"/api/v1/namespaces/{system.namespace}/pods/{name}"
    (await system.api.patch(path, HELD)).ok()
    return path


async def suspend(_: System, job: Job) -> None:
    (await job.change(suspend=True)).ok()


async def preempt(system: System, job: Job) -> None:
    await system.job("higher", job.body["spec"]["partition"], gpuMemory="36Gi", priority=10)


@pytest.mark.parametrize("end", [suspend, preempt])
async def test_the_operator_marks_the_ledger_before_it_deletes_a_pod(
    system: System, behind: Behind, end: Callable[[System, Job], Any]
) -> None:
    async with behind() as proxy:
        partition = await system.partition(preemption="LowerPriority", maxPriority=10)
        job = await system.job("train", partition, gpuMemory="30Gi", sim=LONG)
        await job.runs()
        await end(system, job)

        def ends() -> list[Request]:
            taken = [w.request for w in proxy.writes if w.took_effect]
            return [request for request in taken if is_mark(request) or is_end(request)]

        await until(lambda: any(map(is_end, ends())))
        assert [is_mark(request) for request in ends()[:2]] == [True, False]


async def delete_the_pod(system: System, _: Job) -> None:
    path = f"/api/v1/namespaces/{system.namespace}/pods/train-1"
    (await system.api.delete(path)).ok()


async def delete_the_job(_: System, job: Job) -> None:
    await job.delete()


@pytest.mark.parametrize("delete", [delete_the_pod, delete_the_job])
async def test_a_pod_that_somebody_deletes_is_marked_until_kubelet_kills_it(
    system: System, delete: Callable[[System, Job], Any]
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="30Gi", sim=LONG)
        await job.runs()
        path = await hold(system, "train-1")
        await delete(system, job)

        async def in_time() -> bool:
            """The simulated kubelet shortens the grace period, and the mark follows."""
            deadline = mark_of(system, job, partition).get("releaseDeadline")
            pod = (await system.api.get(path)).ok().body
            killed = pod["metadata"].get("deletionTimestamp")  # garbage collection takes a moment
            if not (deadline and killed):
                return False
            return datetime.fromisoformat(deadline) <= datetime.fromisoformat(killed) + CLOCKS

        await until(in_time)
        assert mark_of(system, job, partition)["releasingSince"]
        other = await system.job("other", partition, gpuMemory="30Gi")
        await other.waits("InsufficientMemory")  # the memory is not given away before
        (await system.api.patch(path, FREE)).ok()
        await other.runs()


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


@pytest.mark.parametrize(
    ("write", "when"), [(is_mark, When.AFTER), (is_end, When.BEFORE), (is_end, When.AFTER)]
)
async def test_the_operator_killed_at_a_write_of_the_end_continues_after_its_restart(
    system: System,
    api_server: ApiServer,
    forge: Forge,
    tmp_path: Path,
    write: Callable[[Request], bool],
    when: When,
) -> None:
    async with FaultProxy(api_server, serial=True) as proxy, system.nodes(1):
        kubeconfig, log = proxy.write_kubeconfig(tmp_path), tmp_path / "log"
        first = await forge.start(kubeconfig, log, identity="crash")
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        fault = proxy.inject(write, when=when, hook=proxy.killing(first.pid))
        (await job.change(suspend=True)).ok()
        await asyncio.wait_for(asyncio.shield(first.ended), TIMEOUT)
        assert fault.happened
        proxy.remove(fault)
        second = await forge.start(kubeconfig, log, identity="crash")
        await job.phase("Suspended")
        await system.history.until(lambda: job.pod() is None)
        await system.history.until(lambda: not mark_of(system, job, partition))
        taken = [w.request for w in proxy.writes if w.took_effect]
        ends = [is_mark(request) for request in taken if is_mark(request) or is_end(request)]
        assert ends[:2] == [True, False]
        # The mark follows a grace period that kubelet shortens, but it tells of one release.
        assert len({since_of(request) for request in taken if is_mark(request)}) == 1
        assert job.outcomes == ["Suspended"]
        await second.stop()
