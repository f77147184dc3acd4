"""Nodes that an autoscaler removes: what it does to them, without the autoscaler."""

from __future__ import annotations

from kube_scheduler.cluster import FOREVER, SchedulingCluster, workload_pod
from support.crds import SERVER_NAMESPACE

CLUSTER_AUTOSCALER = "ToBeDeletedByClusterAutoscaler"

FORGOTTEN_SECONDS = 150
"""For the Pods of a Node that is gone: kube-controller-manager looks for them every 20 s, and waits
40 s more (`gcCheckPeriod` and `quarantineTime` in pkg/controller/podgc/gc_controller.go)."""


async def announce(cluster: SchedulingCluster, node: str) -> None:
    """Set the taint by which an autoscaler announces that it removes a node."""
    taints = [{"key": CLUSTER_AUTOSCALER, "effect": "NoSchedule", "value": "1790000000"}]
    (await cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})).ok()


async def remove(cluster: SchedulingCluster, node: str) -> None:
    (await cluster.api.delete(f"/api/v1/nodes/{node}")).ok()


async def empty(cluster: SchedulingCluster, node: str) -> None:
    """Wait until no slice of a node's GPUs is allocated."""
    servers = {server["metadata"]["name"] for server in cluster.servers_on(node)}
    await cluster.history.until(
        lambda: not servers & set(cluster.ledger().values()), what=cluster.ledger
    )


async def test_workloads_leave_a_node_that_an_autoscaler_removes(
    cluster: SchedulingCluster,
) -> None:
    async with cluster.sharing(1, 1) as nodes:
        await cluster.templates(6)
        await cluster.create_deployment("serve", workload_pod(6, FOREVER, restart="Always"), 1)
        first = await cluster.deployed("serve")
        going = first["spec"]["nodeName"]
        (staying,) = set(nodes) - {going}
        (server,) = cluster.servers_on(going)
        server_pod = server["metadata"]["name"]
        await announce(cluster, going)
        await cluster.create_pod("next", workload_pod(6, FOREVER))
        assert (await cluster.runs("next"))["spec"]["nodeName"] == staying
        assert (await cluster.evict(server_pod, SERVER_NAMESPACE)).status == 429
        (await cluster.evict(first["metadata"]["name"])).ok()
        assert (await cluster.deployed("serve", after=first))["spec"]["nodeName"] == staying
        await empty(cluster, going)
        await cluster.evicted(server_pod, SERVER_NAMESPACE)
        await remove(cluster, going)
        status = await cluster.partition_says(
            "shared", lambda s: any(c["reason"] == "InsufficientGPUs" for c in s["conditions"])
        )
        (message,) = {c["message"] for c in status["conditions"] if c["type"] == "Degraded"}
        assert "1 of 2 GPUs" in message


async def test_workloads_of_a_node_that_vanishes_start_again_on_another(
    cluster: SchedulingCluster,
) -> None:
    async with cluster.sharing(1, 1):
        await cluster.templates(6)
        await cluster.create_deployment("serve", workload_pod(6, FOREVER, restart="Always"), 1)
        first = await cluster.deployed("serve")
        lost = first["spec"]["nodeName"]
        await remove(cluster, lost)
        await cluster.history.until(
            lambda: cluster.pod(first["metadata"]["name"]) is None, seconds=FORGOTTEN_SECONDS
        )
        assert (await cluster.deployed("serve", after=first))["spec"]["nodeName"] != lost
        await empty(cluster, lost)
