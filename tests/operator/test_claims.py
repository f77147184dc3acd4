"""Pods of any controller get slices of GPUs by ResourceClaims."""

from __future__ import annotations

from partita.constants import CLAIM_FINALIZER
from support.crds import SERVER_NAMESPACE
from support.history import GROUP_PATH
from support.system import System
from support.workloads import submit


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
            assert "job" not in entry
            await pod.runs()
            await pod.end()
            await pod.until(lambda w: not w.entries)

    async def test_jobs_and_claims_share_one_gpu_and_one_queue(self, system: System) -> None:
        async with system.running(1):
            partition = await system.ready_partition()
            serve = await submit(system, "serve", partition, memory="20Gi")
            await serve.allocated()
            await serve.runs()
            small = await system.job("small", partition, gpuMemory="1Gi")
            await small.succeeds()
            assert small.status["attempts"][0]["beside"] == [f"{system.namespace}/serve"]
            job = await system.job("train", partition, gpuMemory="30Gi")
            await job.waits("InsufficientMemory")
            second = await submit(system, "second", partition, memory="16Gi")
            await second.allocated()
            third = await submit(system, "third", partition, memory="30Gi", duration="10s")
            await third.waits("InsufficientMemory", "30.0 GiB")
            await third.until(lambda w: w.note("queue-position") in {"1", "2"})
            await third.until(lambda w: "reason" in w.note("estimated-start"))
            await serve.end()
            await second.runs()
            await second.end()
            await job.succeeds()
            await third.until(lambda w: w.phase == "Succeeded")
            await third.until(lambda w: not w.entries)
            assert third.note("queue-position") == third.note("estimated-start") == ""


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
