"""How often the operator writes for one job: what the API server must bear of it.

An ordinary job costs six writes from submission to its end: the allocation, its claim and the
claim's allocation, the Pod, that it runs, how it ended. Then its claim is deleted. Giving the
allocation back is one write with whatever else changes on that GPU in the same cycle. A job that
has to wait costs one more, which says why. A Pod of another controller costs four until it may
start: its allocation in the ledger, the finalizer and the status of its claim, the claim's
allocation, and the Pod's scheduling gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import kopf
import pytest

from partita.times import Times
from support.clusters import ApiServer
from support.faults import writes
from support.job import Job
from support.polling import until
from support.proxy import FaultProxy
from support.requests import Request
from support.system import System
from support.workloads import delete, submit


@pytest.fixture(autouse=True)
def unhurried(system: System) -> None:
    """Count with the operator's own delays, and the same on a slow machine.

    What is not written about a Pod that starts within a second is not written about one that
    takes longer here.
    """
    usual = Times()
    system.set_times(
        queued_within=usual.queued_within, reason_within=usual.reason_within, assigned_within=600.0
    )


def for_jobs(request: Request) -> bool:
    """Leave out what is written for the operator, a partition or a GPU, and not for a job.

    Events are counted apart: no write waits for them, and some may be dropped.
    """
    others = {"leases", "gpupartitions", "poddisruptionbudgets", "events"}
    others |= {"deviceclasses", "resourceslices"}
    return request.resource not in others


def is_event(request: Request) -> bool:
    return request.resource == "events"


@asynccontextmanager
async def counted(
    system: System, api_server: ApiServer, folder: Path, *, gpus: int, speed: float
) -> AsyncIterator[tuple[FaultProxy, str]]:
    """Run a partition whose GPUs are ready, and count the writes from now on."""
    async with (
        FaultProxy(api_server) as proxy,
        system.nodes(gpus, speed=speed),
        system.operator(proxy.write_kubeconfig(folder)),
    ):
        partition = await system.ready_partition(gpus=gpus, sharing={"maxJobsPerGPU": 24})
        await system.seen()
        proxy.writes.clear()
        yield proxy, partition
        await system.settle()


def peak(system: System, partition: str, job: Job) -> str | None:
    """What a job has used at most, as the agent of its GPU reports it."""
    (server,) = system.servers(partition)
    return job.usage(server).get("peakMemory")


def per_job(counts: Counter[str], jobs: int) -> float:
    print(dict(counts))  # noqa: T201
    return counts.total() / jobs


async def jobs_succeed(
    system: System, partition: str, memory: str, sims: list[dict[str, str]]
) -> None:
    """Run jobs at once until they have ended and nothing is left of them."""
    jobs = [
        await system.job(f"train-{i}", partition, gpuMemory=memory, sim=sim)
        for i, sim in enumerate(sims)
    ]
    for job in jobs:
        await job.succeeds()
    await system.history.until(lambda: not system.history.left_over())


async def test_a_lone_job_costs_nine_writes_until_it_has_finished(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    system.set_times(queued_within=600.0)  # a busy machine may take long to decide
    async with counted(system, api_server, tmp_path, gpus=1, speed=10) as (proxy, partition):
        job = await system.job("train", partition, gpuMemory="4Gi", sim={"duration": "20h"})
        await job.runs()
        # What the agent reports after the end is written by itself.
        await system.history.until(lambda: peak(system, partition, job))
        await system.seen()
        await job.end()
        await job.succeeds()
        await system.history.until(lambda: not system.history.left_over())

        def done() -> list[str]:
            # Without what was turned away because the agent had reported in between.
            writes = [w.request for w in proxy.writes if w.took_effect and for_jobs(w.request)]
            return [request.kind for request in writes]

        # a watch may show a write before its answer is through
        await until(lambda: len(done()) >= 9)
        assert [*sorted(done()[:2]), *done()[2:7], *sorted(done()[7:])] == [
            "POST pods",
            "POST resourceclaims",  # at the same time
            "PATCH gpuservers/status",
            "PATCH resourceclaims/status",
            "PATCH pods",
            "PATCH sharedgpujobs/status",
            "PATCH sharedgpujobs/status",  # it has finished
            "DELETE resourceclaims",  # at the same time as the next
            "PATCH gpuservers/status",
        ]
        events = [w.request for w in proxy.writes if is_event(w.request)]
        assert len(events) == 2  # Scheduled, Finished


async def test_jobs_that_start_at_once_cost_no_more_each_than_a_lone_one(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    """How many changes of a GPU come into one write depends on the machine: a benchmark says it."""
    system.set_times(queued_within=600.0)
    async with counted(system, api_server, tmp_path, gpus=2, speed=10) as (proxy, partition):
        await jobs_succeed(system, partition, "1Gi", [{"gpu": "1"}] * 20)
        assert per_job(proxy.counts(for_jobs), 20) <= 9
        assert sum(proxy.counts(is_event).values()) <= 2 * 20


async def test_jobs_that_have_to_wait_cost_at_most_one_write_more_each(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    # A slow machine has time to write that a job has just been queued, and to update why it waits.
    system.set_times(queued_within=600.0, refresh=600.0, estimate_starts=600.0)
    async with counted(system, api_server, tmp_path, gpus=2, speed=20) as (proxy, partition):
        lasts = [{"duration": f"{5 + i % 7}s"} for i in range(20)]
        await jobs_succeed(system, partition, "9Gi", lasts)
        assert per_job(proxy.counts(for_jobs), 20) <= 10


async def test_a_pod_with_a_claim_costs_four_writes_until_it_may_start(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    """That it has just been queued is not written, however slow the API server is meanwhile."""
    system.set_times(scheduling_within=30.0)
    async with counted(system, api_server, tmp_path, gpus=1, speed=10) as (proxy, partition):
        proxy.inject(writes("gpuservers", "status"), delay=0.5)
        pod = await submit(system, "serve", partition)
        await pod.allocated()
        # a watch may show a write before its answer is through
        await until(lambda: proxy.counts(for_jobs)["PATCH pods"] >= 1)
        done = [w for w in proxy.writes if for_jobs(w.request)]
        assert [(w.request.kind, w.took_effect) for w in done] == [
            ("PATCH gpuservers/status", True),
            ("PATCH resourceclaims", True),
            ("PATCH resourceclaims/status", True),
            ("PATCH pods", True),
        ]
        await delete(pod)


async def test_kopf_writes_nothing_not_even_to_take_off_its_own_finalizer(
    system: System, api_server: ApiServer, tmp_path: Path
) -> None:
    mark = kopf.OperatorSettings().persistence.finalizer
    async with counted(system, api_server, tmp_path, gpus=1, speed=10) as (proxy, partition):
        metadata = {"finalizers": [mark]}
        job = await system.job("marked", partition, gpuMemory="4Gi", metadata=metadata)
        await job.succeeds()
        (await system.api.delete(job.path)).ok()
        await system.seen()
        await (await system.job("next", partition, gpuMemory="4Gi")).succeeds()
        assert job.body is not None
        assert job.body["metadata"]["finalizers"] == [mark]
        assert not [w for w in proxy.writes if w.request.agent.startswith("kopf")]
        (await system.api.patch(job.path, {"metadata": {"finalizers": None}})).ok()


async def test_fields_of_a_job_have_owners_by_name_and_none_are_kept_of_a_gpu_server(
    system: System, api_server: ApiServer
) -> None:
    """Those would be most of what a ledger costs the API server."""
    if api_server.kind == "embedded":
        pytest.skip("the embedded API server keeps no owners of fields")
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim={"duration": "2s"})
        await job.succeeds()
        server = system.history.get("gpuservers", f"{partition}-0")
        assert server["status"]["uuid"]
        assert "managedFields" not in server["metadata"]
        written = (await system.api.get(job.path)).ok().body["metadata"]["managedFields"]
        assert "partita-operator" in {entry["manager"] for entry in written}
