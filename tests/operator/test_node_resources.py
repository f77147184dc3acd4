"""Jobs start only on nodes that can run their Pods, and say why where none can."""

from __future__ import annotations

from typing import Any

from partita_testcluster.nodes.gpu import GIB
from partita_testcluster.nodes.node import NodeSpec
from support.operator import System, container

NODES = "/api/v1/nodes"
SMALL = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "50Gi", "pods": "110"}
LONG = {"duration": "20h"}
SHORT = {"duration": "200ms"}


def asking(**requests: str) -> list[dict[str, Any]]:
    return [container(resources={"requests": requests})]


def small(*gpus: int) -> list[NodeSpec]:
    return [NodeSpec(f"n{i}", n, 40 * GIB, allocatable=SMALL) for i, n in enumerate(gpus)]


async def web(system: System, node: str, cpu: str) -> str:
    """Bind a Pod of somebody else to a node; return its path."""
    path = f"/api/v1/namespaces/{system.namespace}/pods"
    spec = {"nodeName": node, "containers": asking(cpu=cpu)}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    await system.seen((await system.api.post(path, body)).ok())
    return f"{path}/web"


async def test_a_job_waits_for_the_cpu_of_its_node_and_starts_once_it_is_free(
    system: System,
) -> None:
    async with system.running(specs=small(1)):
        partition = await system.partition()
        await system.ready(partition)
        first = await system.job(
            "first", partition, gpuMemory="4Gi", containers=asking(cpu="3"), sim=LONG
        )
        await first.runs()
        second = await system.job(
            "second", partition, gpuMemory="4Gi", containers=asking(cpu="2"), sim=SHORT
        )
        (node,) = {server["status"]["node"] for server in system.servers(partition)}
        said = await second.waits("InsufficientNodeResources", "needs 2 CPUs of its node")
        assert f"the most that is free is 0.98 of 4 on {node}" in said  # a server Pod has 20m
        assert second.pod() is None
        await first.delete()
        await second.succeeds()


async def test_cpu_that_pods_of_others_have_is_not_given_to_jobs(system: System) -> None:
    async with system.running(specs=small(1)):
        partition = await system.partition()
        await system.ready(partition)
        path = await web(system, system.named("n0"), "3")
        job = await system.job(
            "train", partition, gpuMemory="4Gi", containers=asking(cpu="2"), sim=SHORT
        )
        await job.waits("InsufficientNodeResources", "needs 2 CPUs")
        assert job.pod() is None
        (await system.api.delete(path, {"gracePeriodSeconds": 0})).ok()
        await job.succeeds()


async def test_a_taint_that_a_job_does_not_tolerate_keeps_it_from_a_node(system: System) -> None:
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    async with system.running(specs=small(1)):
        partition = await system.partition()
        (server,) = await system.ready(partition)
        node = f"{NODES}/{server['status']['node']}"
        await system.seen((await system.api.patch(node, {"spec": {"taints": [taint]}})).ok())
        job = await system.job("train", partition, gpuMemory="4Gi", sim=SHORT)
        await job.waits("NeverFits", "the taint team=b:NoSchedule, which it does not tolerate")
        tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
        other = await system.job("other", partition, gpuMemory="4Gi", pod=tolerated, sim=SHORT)
        await other.succeeds()
        (await system.api.patch(node, {"spec": {"taints": None}})).ok()
        await job.succeeds()
