"""Nodes that are cordoned or whose driver is upgraded, and partitions that no node can serve."""

from __future__ import annotations

from typing import Any

from support.crds import SERVER_NAMESPACE
from support.polling import until
from support.queues import LONG
from support.system import System

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
BUDGETS = f"/apis/policy/v1/namespaces/{SERVER_NAMESPACE}/poddisruptionbudgets"

Body = dict[str, Any]


def message(status: Body, kind: str) -> str:
    """Return a condition's message."""
    found = (c["message"] for c in status.get("conditions", ()) if c["type"] == kind)
    return str(next(found, ""))


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


async def test_a_driver_upgrade_waits_for_jobs_takes_the_gpu_and_gives_it_back(
    system: System,
) -> None:
    async with system.nodes(1) as (node,), system.operator():
        partition = await system.ready_partition()
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
