"""Nodes that are cordoned or whose driver is upgraded, and partitions that no node can serve."""

from __future__ import annotations

from typing import Any

from support.operator import SERVER_NAMESPACE, System, condition, gpu_states
from support.polling import until
from support.queues import LONG

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
BUDGETS = f"/apis/policy/v1/namespaces/{SERVER_NAMESPACE}/poddisruptionbudgets"

Body = dict[str, Any]


def message(status: Body, kind: str) -> str:
    """Return a condition's message."""
    found = (c["message"] for c in status.get("conditions", ()) if c["type"] == kind)
    return str(next(found, ""))


def degraded(status: Body, *words: str) -> bool:
    """Tell whether a partition is Degraded and says these words."""
    found = condition({"status": status}, "Degraded")[0] == "True"
    return found and all(word in message(status, "Degraded") for word in words)


async def label(system: System, node: str, labels: Body) -> None:
    """Set, or remove, labels of a node."""
    (await system.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})).ok()


async def budgeted(system: System) -> list[str]:
    """Return the GPUServers whose server Pods the eviction API must not end."""
    items = (await system.api.get(BUDGETS)).ok().body["items"]
    return sorted(item["metadata"]["labels"]["partita.dev/server"] for item in items)


async def budgets_become(system: System, wanted: list[str]) -> None:
    """Wait until the budgets are those of these GPUServers."""

    async def are_wanted() -> bool:
        return await budgeted(system) == wanted

    await until(are_wanted)


async def test_more_gpus_than_the_cluster_has_are_reported(system: System) -> None:
    async with system.running(1, 1, 1, 1):
        partition = await system.partition(gpus=9)
        status = await system.partition_says(
            partition,
            lambda s: message(s, "Ready").startswith(
                "4 of 9 GPUs are ready; 4 of 9 GPUs could be allocated: "
            ),
        )
        assert condition({"status": status}, "Ready") == ("False", "InsufficientGPUs")
        assert message(status, "Ready").startswith(
            "4 of 9 GPUs are ready; 4 of 9 GPUs could be allocated: "
            f"{partition}-4, {partition}-5, {partition}-6 and 2 more cannot start: "
            "no node takes the Pod: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu"
        )
        assert degraded(status, "add GPUs, free some, or lower spec.gpus")
        assert condition({"status": status}, "Progressing")[0] == "False"
        assert list(gpu_states(status).values()) == ["Ready"] * 4 + ["Unschedulable"] * 5
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()


async def test_a_driver_upgrade_waits_for_jobs_takes_the_gpu_and_gives_it_back(
    system: System,
) -> None:
    async with system.nodes(1) as (node,), system.operator():
        partition = await system.partition()
        await system.ready(partition)
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        await label(system, node, {UPGRADE: "cordon-required"})
        await system.history.until(
            lambda: system.servers(partition)[0]["spec"].get("drainReason") == "NodeMaintenance"
        )
        assert job.outcomes == [""], "it may end within drainTimeout"
        assert f"{partition}-0" in await budgeted(system)
        waiting = await system.job("next", partition, gpuMemory="4Gi")
        await system.partition_says(
            partition, lambda s: f"{UPGRADE}=cordon-required" in message(s, "Ready")
        )
        await job.delete()
        pods = lambda: system.history.all("pods", SERVER_NAMESPACE)  # noqa: E731
        await system.history.until(lambda: not pods(), what=pods)
        await budgets_become(system, [])
        await label(system, node, {UPGRADE: "pod-restart-required"})
        await label(system, node, {UPGRADE: "upgrade-done"})
        await waiting.succeeds()
        (server,) = system.servers(partition)
        assert not {"drainSince", "drainReason"} & server["spec"].keys()
        await system.settle()


async def test_the_budget_of_a_server_pod_lasts_until_its_node_is_closed_and_its_jobs_are_gone(
    system: System,
) -> None:
    async with system.nodes(1) as (node,), system.operator():
        partition = await system.partition()
        await system.ready(partition)
        await budgets_become(system, [f"{partition}-0"])
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        path = f"/api/v1/nodes/{node}"
        await system.cordon(node)
        await system.partition_says(partition, lambda s: "is cordoned" in message(s, "Ready"))
        assert await budgeted(system) == [f"{partition}-0"]
        await job.delete()
        await budgets_become(system, [])
        (await system.api.patch(path, {"spec": {"unschedulable": None}})).ok()
        await budgets_become(system, [f"{partition}-0"])
        (await system.api.delete(f"/apis/partita.dev/v1alpha1/gpupartitions/{partition}")).ok()
        await budgets_become(system, [])


async def test_server_pods_that_the_api_server_refuses_are_reported(system: System) -> None:
    async with system.nodes(1), system.operator(server_namespace="not-there"):
        partition = await system.partition()
        await system.partition_says(
            partition, lambda s: degraded(s, "could not be set up", "not-there")
        )
