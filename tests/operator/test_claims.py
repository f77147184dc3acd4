"""Pods of any controller get slices of GPUs by ResourceClaims."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from partita.constants import ALLOCATION_GATE, CLAIM_FINALIZER
from support.behind_proxy import Behind
from support.clusters import ApiServer
from support.crashes import kill_while
from support.history import GROUP_PATH
from support.operator import SERVER_NAMESPACE, System
from support.operator_process import Forge
from support.polling import until
from support.proxy import FaultProxy, When, unavailable
from support.queues import LONG
from support.record import Body
from support.requests import Request
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
                "visibleGpus": [],
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

    async def test_the_next_claim_gets_the_memory_in_the_write_that_releases_it(
        self, system: System
    ) -> None:
        async with system.running(1):
            partition = await system.partition()
            (server,) = await system.ready(partition)
            first = await submit(system, "first", partition, memory="30Gi")
            await first.allocated()
            await first.runs()
            second = await submit(system, "second", partition, memory="30Gi")
            await second.waits("InsufficientMemory")
            await first.end()
            await second.allocated()
            versions = system.history.versions("gpuservers", server["metadata"]["name"])
            holders = [
                {e["pod"] for e in body.get("status", {}).get("allocations", {}).values()}
                for body in versions
            ]
            assert [who for who, _ in groupby(holders)] == [set(), {"first"}, {"second"}]
            await delete(second)

    async def test_a_pod_with_another_gate_is_ignored_until_it_is_removed(
        self, system: System
    ) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            kueue = "kueue.x-k8s.io/admission"
            held = await submit(system, "held", partition, gates=(kueue, ALLOCATION_GATE))
            other = await submit(system, "other", partition)
            await other.allocated()
            assert not held.allocation
            await held.patch("pods", {"spec": {"schedulingGates": [{"name": ALLOCATION_GATE}]}})
            await held.allocated()
            await delete(held)
            await delete(other)

    async def test_claims_of_other_drivers_are_never_touched(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            theirs = await submit(system, "theirs", partition, device_class="gpu.nvidia.com")
            ours = await submit(system, "ours", partition)
            await ours.allocated()
            assert not theirs.allocation
            assert (
                theirs.now("resourceclaims")["metadata"].keys() == theirs.claim["metadata"].keys()
            )
            assert (
                len(system.history.versions("resourceclaims", "theirs-gpu", system.namespace)) == 1
            )
            await delete(ours)


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
    async def test_an_unbound_pod_gives_its_gpu_back_and_gets_another(self, system: System) -> None:
        system.set_times(bind_within=0.5)
        async with system.running(1, 1):
            partition = await system.partition(gpus=2)
            await system.ready(partition, gpus=2)
            pod = await submit(system, "big", partition, schedulerName="none")
            first = (await pod.allocated())["devices"]["results"][0]["pool"]
            said = "0/2 nodes are available: 2 Insufficient cpu."
            unschedulable = {
                "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": said,
            }  # fmt: skip
            await pod.patch("pods", {"status": {"conditions": [unschedulable]}}, "/status")
            await pod.until(
                lambda w: w.allocation and w.allocation["devices"]["results"][0]["pool"] != first
            )
            await delete(pod)
            await pod.until(lambda w: not w.entries)

    async def test_an_allocation_that_the_scheduler_clears_is_released(
        self, system: System
    ) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            pod = await submit(system, "big", partition, schedulerName="none")
            await pod.allocated()
            since = pod.entries[0]["since"]
            await pod.patch("resourceclaims", {"status": {"allocation": None}}, "/status")
            await pod.until(lambda w: all(entry["since"] != since for entry in w.entries))
            await delete(pod)
            await pod.until(lambda w: not w.entries)

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

    async def test_a_running_pod_keeps_its_memory_when_its_claim_is_deleted_by_force(
        self, system: System
    ) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            pod = await held_pod(system, partition, memory="30Gi")
            await system.seen()
            await clear_allocation(pod)
            await pod.patch("resourceclaims", {"metadata": {"finalizers": None}})
            (await system.api.delete(pod.path("resourceclaims"))).ok()
            await pod.until(lambda w: not w.now("resourceclaims"))
            other = await submit(system, "other", partition, memory="30Gi")
            await other.waits("InsufficientMemory")
            assert pod.entries
            await delete(pod)
            await other.allocated()
            await delete(other)
            await other.until(lambda w: not w.entries)


class TestLedgerWithoutTheEntry:
    """Somebody edits the status of a GPUServer, or restores it from a backup."""

    async def test_the_entry_of_a_pod_that_uses_it_is_written_again(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            (server,) = await system.ready(partition)
            pod = await submit(
                system,
                "serve",
                partition,
                memory="30Gi",
                annotations={"gpu-threads": "50", "processes": "2"},
            )
            await pod.allocated()
            await pod.runs()
            (before,) = pod.entries
            await edit_ledger(system, server, {pod.uid: None})
            await pod.until(lambda w: [e["since"] for e in w.entries] > [before["since"]])
            (after,) = pod.entries
            assert {**after, "since": before["since"]} == before
            other = await submit(system, "other", partition, memory="30Gi")
            await other.waits("InsufficientMemory")
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            await delete(pod)
            await other.allocated()
            await delete(other)
            await other.until(lambda w: not w.entries)

    async def test_a_running_pod_whose_claim_has_no_allocation_either_is_evicted(
        self, system: System
    ) -> None:
        """So it ends where the allocation was cleared before the operator saw the Pod bound."""
        async with system.nodes(1):
            async with system.operator():
                partition = await system.partition()
                (server,) = await system.ready(partition)
                pod = await held_pod(system, partition, memory="30Gi")
            await clear_allocation(pod)
            await edit_ledger(system, server, {pod.uid: None})
            async with system.operator():
                await pod.until(lambda w: w.now("pods")["metadata"].get("deletionTimestamp"))
                said = "it is evicted: the allocation of its claim was cleared"
                await pod.until(
                    lambda _: ("AllocationCleared", said) in system.history.events("serve")
                )
                await delete(pod)

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


@pytest.mark.parametrize("then", ["kept", "released"])
async def test_a_pod_ends_although_the_agent_of_its_gpu_is_gone(system: System, then: str) -> None:
    """kubelet ends no Pod with a claim before an agent has unprepared the claim."""
    async with system.running(1):
        partition = await system.partition()
        (server,) = await system.ready(partition)
        name, uid = server["metadata"]["name"], server["metadata"]["uid"]
        serve = await submit(system, "serve", partition)
        await serve.allocated()
        await serve.runs()
        if then == "released":
            (await system.api.delete(f"{GROUP_PATH}/gpuservers/{name}")).ok()
        path = f"/api/v1/namespaces/{SERVER_NAMESPACE}/pods/{name}"
        (await system.api.delete(path, {"gracePeriodSeconds": 0})).ok()
        await serve.until(lambda w: not w.entries)  # it has failed, or was evicted
        if then == "released":
            await system.history.until(
                lambda: all(s["metadata"]["uid"] != uid for s in system.servers(partition))
            )
        await system.ready(partition)


async def test_a_node_that_is_gone_holds_up_no_release(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        (server,) = await system.ready(partition)
        serve = await submit(system, "serve", partition)
        await serve.allocated()
        await serve.runs()
        await system.scale(partition, 0)
        (await system.api.delete(f"/api/v1/nodes/{server['status']['node']}")).ok()
        await delete(serve)  # as the garbage collector of Pods does
        await serve.until(lambda w: not w.entries)
        await system.history.until(lambda: not system.servers(partition))


def counts(request: Request) -> bool:
    """Tell the writes that make a difference."""
    return request.is_write and request.resource in {"gpuservers", "pods", "resourceclaims"}


def is_reason(request: Request) -> bool:
    """Say whether a request writes why a claim waits."""
    return request.resource == "resourceclaims" and b"partita.dev/status" in request.body


async def test_a_reason_that_cannot_be_written_is_written_later(
    system: System, behind: Behind
) -> None:
    system.set_times(retry_after=0.1)
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
@pytest.mark.parametrize(
    ("every", "when"),
    [(1, When.AFTER), (3, When.AFTER), (2, When.BEFORE)],
    ids=lambda value: value.name.lower() if isinstance(value, When) else str(value),
)
async def test_killed_at_every_so_many_writes_nothing_is_allocated_twice_or_left(
    system: System,
    api_server: ApiServer,
    forge: Forge,
    tmp_path: Path,
    every: int,
    when: When,
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
            scenario(), forge, proxy, tmp_path, counts, lives=(every,), when=when
        )
        assert kills >= 12 // every
