"""Pods of any controller get slices of GPUs by ResourceClaims."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita.constants import CLAIM_FINALIZER
from support.behind_proxy import Behind
from support.clusters import ApiServer
from support.crashes import kill_while
from support.crds import SERVER_NAMESPACE
from support.faults import When, unavailable
from support.history import GROUP_PATH
from support.operator_process import Forge
from support.polling import until
from support.proxy import FaultProxy
from support.queues import LONG
from support.record import Body
from support.requests import Request
from support.system import System
from support.workloads import Workload, delete, submit


async def held_pod(system: System, partition: str, memory: str = "8Gi") -> Workload:
    """Run a Pod that keeps running however long its deletion takes."""
    pod = await submit(system, "serve", partition, memory=memory)
    await pod.allocated()
    await pod.runs()
    await pod.outlasts_its_deletion()
    return pod


async def clear_allocation(pod: Workload) -> None:
    """Do what kube-scheduler does with the claim of a Pod that it cannot bind."""
    cleared = {"status": {"reservedFor": None, "allocation": None}}
    await pod.patch("resourceclaims", cleared, "/status")


async def edit_ledger(system: System, server: Body, entries: dict[str, Body | None]) -> None:
    """Change the ledger of a GPUServer as only a person would."""
    path = f"{GROUP_PATH}/gpuservers/{server['metadata']['name']}/status"
    answer = await system.api.patch(path, {"status": {"allocations": entries}})
    system.history.by_hand.add(int(answer.ok().version))


class TestAllocation:
    async def test_a_claim_gets_a_slice_and_its_pod_is_let_go(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            (server,) = await system.ready(partition)
            pod = await submit(
                system,
                "serve",
                partition,
                annotations={"framework": "PyTorch", "gpu-threads": "50"},
                restartPolicy="Always",
            )
            allocation = await pod.allocated()
            (result,) = allocation["devices"]["results"]
            assert (result["driver"], result["pool"], result["device"], result["request"]) == (
                "gpu.partita.dev", server["metadata"]["name"], "gpu", "gpu",
            )  # fmt: skip
            parameters = allocation["devices"]["config"][0]["opaque"]["parameters"]
            assert parameters == {
                "apiVersion": "partita.dev/v1alpha1",
                "kind": "SliceParameters",
                "gpuServer": server["metadata"]["name"],
                "gpu": server["status"]["uuid"],
                "memory": "8Gi",
                "threadPercent": 50,
                "processes": 1,
                "framework": "PyTorch",
                "oversubscription": False,
                "yields": False,
            }
            assert CLAIM_FINALIZER in pod.now("resourceclaims")["metadata"]["finalizers"]
            (entry,) = pod.entries
            assert (entry["pod"], entry["podUID"]) == ("serve", pod.pod["metadata"]["uid"])
            assert (entry["lasting"], entry["application"]) == (True, "Pod/serve")
            assert "attempt" not in entry
            await pod.runs()
            await pod.end()
            await pod.until(lambda w: not w.entries)

    async def test_jobs_and_claims_share_one_gpu_and_one_queue(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            serve = await submit(system, "serve", partition, memory="20Gi")
            await serve.allocated()
            await serve.runs()
            job = await system.job("train", partition, gpuMemory="30Gi")
            await job.waits("InsufficientMemory")
            second = await submit(system, "second", partition, memory="16Gi")
            await second.allocated()
            third = await submit(system, "third", partition, memory="30Gi", duration="10s")
            await third.waits("InsufficientMemory", "30.0 GiB")
            await third.until(lambda w: w.position in {"1", "2"})
            await serve.end()
            await second.runs()
            await second.end()
            await job.succeeds()
            await third.until(lambda w: w.phase == "Succeeded")
            await third.until(lambda w: not w.entries)
            assert third.position == ""


class TestQuota:
    async def test_claims_and_jobs_of_a_namespace_count_together(self, system: System) -> None:
        quotas = [{"namespace": system.namespace, "memory": "20Gi", "jobs": 2}]
        async with system.running(1):
            partition = await system.partition(quotas=quotas)
            await system.ready(partition)
            serve = await submit(system, "serve", partition, memory="12Gi")
            await serve.allocated()
            large = await system.job("large", partition, gpuMemory="10Gi", sim=LONG)
            await large.waits("QuotaExceeded", "12.0 GiB of 20.0 GiB")
            small = await system.job("small", partition, gpuMemory="8Gi", sim=LONG)
            await small.runs()
            beside = [f"{system.namespace}/serve"]
            assert small.status["assignment"]["beside"] == beside
            assert small.status["attempts"][0]["beside"] == beside
            more = await submit(system, "more", partition, memory="1Gi")
            await more.waits("QuotaExceeded", "2 of 2 jobs")
            await small.delete()
            await more.allocated()
            await delete(serve)
            await large.runs()
            await delete(more)
            await large.delete()


class TestOthersDecideToo:
    async def test_a_running_pod_whose_allocation_is_cleared_is_evicted(
        self, system: System
    ) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            pod = await held_pod(system, partition)
            await system.seen()
            await clear_allocation(pod)
            await pod.until(lambda w: w.now("pods")["metadata"].get("deletionTimestamp"))
            assert pod.entries
            said = "it is evicted: the allocation of its claim was cleared"
            await pod.until(lambda _: ("AllocationCleared", said) in system.history.events("serve"))
            await delete(pod)
            await pod.until(lambda w: not w.entries)


class TestLedgerWithoutTheEntry:
    """Somebody edits the status of a GPUServer, or restores it from a backup."""

    async def test_a_pod_whose_memory_belongs_to_another_by_now_is_evicted(
        self, system: System
    ) -> None:
        async with system.nodes(1):
            async with system.operator():
                partition = await system.partition()
                (server,) = await system.ready(partition)
                pod = await held_pod(system, partition, memory="30Gi")
                other = await submit(system, "other", partition, memory="30Gi")
                await other.waits("InsufficientMemory")
            theirs = {
                **pod.entries[0],
                "name": "other-gpu",
                "pod": "other",
                "podUID": other.pod["metadata"]["uid"],
            }
            await edit_ledger(system, server, {pod.uid: None, other.uid: theirs})
            async with system.operator():
                await pod.until(lambda w: w.now("pods")["metadata"].get("deletionTimestamp"))
                await pod.until(
                    lambda _: any(
                        why == "NotInLedger" and "has no room for it any more" in text
                        for why, text in system.history.events("serve")
                    )
                )
                assert not pod.entries
                await delete(pod)
                await delete(other)
                await other.until(lambda w: not w.entries)


async def test_a_pod_ends_although_the_agent_of_its_gpu_is_gone(system: System) -> None:
    """kubelet ends no Pod with a claim before an agent has unprepared the claim."""
    async with system.running(1):
        partition = await system.partition()
        (server,) = await system.ready(partition)
        name, uid = server["metadata"]["name"], server["metadata"]["uid"]
        serve = await submit(system, "serve", partition)
        await serve.allocated()
        await serve.runs()
        (await system.api.delete(f"{GROUP_PATH}/gpuservers/{name}")).ok()
        path = f"/api/v1/namespaces/{SERVER_NAMESPACE}/pods/{name}"
        (await system.api.delete(path, {"gracePeriodSeconds": 0})).ok()
        await serve.until(lambda w: not w.entries)  # it has failed, or was evicted
        await system.history.until(
            lambda: all(s["metadata"]["uid"] != uid for s in system.servers(partition))
        )
        await system.ready(partition)


def counts(request: Request) -> bool:
    """Tell the writes that make a difference."""
    return request.is_write and request.resource in {"gpuservers", "pods", "resourceclaims"}


def is_reason(request: Request) -> bool:
    """Say whether a request writes why a claim waits."""
    return request.resource == "resourceclaims" and b"partita.dev/status" in request.body


async def test_a_reason_that_cannot_be_written_is_written_later(
    system: System, behind: Behind
) -> None:
    system.set_times(retry_after=0.1, request_pause=0.01)
    async with behind() as proxy:
        partition = await system.partition()
        await system.ready(partition)
        fault = proxy.inject(is_reason, times=None, answer=unavailable())
        large = await submit(system, "large", partition, memory="100Gi")
        await until(lambda: any(entry["event"] == "reason not written" for entry in system.logs))
        proxy.remove(fault)
        await large.waits("NeverFits")
        await delete(large)


@pytest.mark.timeout(240)
async def test_killed_at_each_write_nothing_is_allocated_twice_or_left(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> None:
    async with FaultProxy(api_server, serial=True) as proxy, system.nodes(1):

        async def scenario() -> None:
            partition = await system.partition()
            await system.ready(partition)
            pods = [
                await submit(system, name, partition, memory="12Gi")
                for name in ("first", "second", "third")
            ]
            for pod in pods:
                await pod.allocated()
                await pod.runs()
            waits = await submit(system, "waits", partition, memory="30Gi")
            await pods[0].end()
            await delete(pods[1])
            await pods[2].end("Failed")
            await waits.allocated()
            await delete(waits)
            for pod in (*pods, waits):
                await pod.until(lambda w: not w.entries)

        kills = await kill_while(
            scenario(), forge, proxy, tmp_path, counts, lives=(1,), when=When.AFTER
        )
        assert kills >= 12
