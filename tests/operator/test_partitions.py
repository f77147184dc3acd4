"""Whom a partition serves, and on which GPUs."""

from __future__ import annotations

from support.history import GROUP_PATH
from support.system import System
from support.workloads import delete, submit


async def test_only_allowed_namespaces_are_served_and_a_label_added_later_counts(
    system: System,
) -> None:
    async with system.running(1):
        friend = await system.another_namespace(team="vision")
        partition = await system.partition(allowedNamespaces={"matchLabels": {"team": "vision"}})
        welcome = await system.job("welcome", partition, gpuMemory="4Gi", namespace=friend)
        await welcome.succeeds()
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("NamespaceNotAllowed", system.namespace)
        conditions = {c["type"]: c["status"] for c in job.status["conditions"]}
        assert conditions["Stalled"] == "True"
        labels = {"metadata": {"labels": {"team": "vision"}}}
        (await system.api.patch(f"/api/v1/namespaces/{system.namespace}", labels)).ok()
        await job.succeeds()


async def test_a_claim_of_several_gpus_gets_them_on_one_node_or_none(system: System) -> None:
    async with system.running(1, 2):
        partition = await system.ready_partition(
            gpus=3, sharing={"mode": "Exclusive"}, drainTimeout="0s"
        )
        pod = await submit(system, "train", partition, count=2)
        allocation = await pod.allocated()
        names = [result["pool"] for result in allocation["devices"]["results"]]
        assert names == sorted(names)
        entries = {s["metadata"]["name"]: s["status"] for s in system.servers(partition)}
        assert {entries[name]["node"] for name in names} == {system.named("n1")}
        given = [one["opaque"]["parameters"] for one in allocation["devices"]["config"]]
        assert [one["gpu"] for one in given] == [entries[name]["uuid"] for name in names]
        await pod.runs()
        assert len(pod.entries) == 2
        assert f" on {', '.join(names)} (node " in pod.status
        wider = await submit(system, "wider", partition, count=3)
        await wider.waits("NeverFits", "needs 3 GPUs on one node", "at most 2")
        waiting = await submit(system, "waiting", partition, count=2, duration="1s")
        await waiting.waits("GPUNotIdle", "needs 2 idle GPUs on one node")
        path = f"{GROUP_PATH}/gpuservers/{names[1]}"
        # Any of its GPUs lets its Pod end.
        drained = {"spec": {"drainSince": "2026-01-01T00:00:00Z"}}
        (await system.api.patch(path, drained)).ok()
        await pod.until(lambda w: not w.entries)
        (await system.api.patch(path, {"spec": {"drainSince": None}})).ok()
        await waiting.until(lambda w: w.phase == "Succeeded" and not w.entries)
        await delete(wider)
