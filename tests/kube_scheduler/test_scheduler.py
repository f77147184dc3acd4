"""What kube-scheduler decides about Pods with slices: it preempts them, and refuses their node."""

from __future__ import annotations

from typing import Any

from kube_scheduler.cluster import FOREVER, Body, SchedulingCluster, said, workload_pod
from partita.constants import ALLOCATION_GATE
from support.api import Api

NOISY = {"app": "noisy"}


def with_cpu(pod: Body, cpu: str) -> Body:
    """Have the container of a Pod request CPU."""
    (container,) = pod["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": cpu}
    return pod


def service(cpu: str, **spec: Any) -> Body:
    """A Pod that never ends by itself."""
    return with_cpu(workload_pod(6, FOREVER, restart="Always", **spec), cpu)


async def take_cpu(cluster: SchedulingCluster, node: str, cpu: str, priority: str) -> None:
    """Create a Pod without a GPU that takes CPU of a node from Pods of lower priority."""
    container = {
        "name": "main",
        "image": "example.org/batch:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    pod = {
        "metadata": {"annotations": {}},
        "spec": {
            "priorityClassName": priority,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }
    await cluster.create_pod("urgent", pod)


def away_from_noise(**where: Any) -> Body:
    """A rule of a Pod that Partita does not know: to be on no node with a noisy Pod.

    Parameters
    ----------
    where
        Fields that select the namespaces of these Pods; that of the Pod itself without them.
    """
    term = {"labelSelector": {"matchLabels": NOISY}, "topologyKey": "kubernetes.io/hostname"}
    term |= where
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def allocations(cluster: SchedulingCluster, pod: str) -> list[str]:
    """Return the GPUServers that were allocated to the claim of a Pod, in order."""
    pools: list[str] = []
    for versions in cluster.history.lives("resourceclaims"):
        owners = versions[0].body["metadata"].get("ownerReferences", ())
        if not any(owner["name"] == pod for owner in owners):
            continue
        before = None
        for version in versions:
            allocation = version.body.get("status", {}).get("allocation")
            pool = allocation["devices"]["results"][0]["pool"] if allocation else None
            if pool is not None and pool != before:
                pools.append(pool)
            before = pool
    return pools


async def test_a_preempted_pod_waits_for_cpu_where_no_other_node_has_a_gpu(
    cluster: SchedulingCluster, urgent: str
) -> None:
    async with cluster.sharing(1, cpu="4") as (node,):
        await cluster.templates(6)
        await cluster.create_deployment("serve", service("3"), 1)
        first = await cluster.deployed("serve")
        await take_cpu(cluster, node, "3", urgent)
        pods = await cluster.history.until(lambda: cluster.replicas("serve", after=first))
        second = pods[0]["metadata"]["name"]
        # The CPU is promised to the other Pod before that Pod is bound: until then only
        # kube-scheduler knows it.
        await cluster.claim_says(
            second,
            lambda claim: (
                "InsufficientNodeResources: " in said(claim)
                or ("BackOff: " in said(claim) and "Insufficient cpu" in said(claim))
            ),
        )
        await cluster.history.until(lambda: not cluster.ledger(), what=cluster.ledger)
        last = cluster.history.versions("pods", first["metadata"]["name"], cluster.namespace)[-1]
        assert "PreemptionByScheduler" in {c.get("reason") for c in last["status"]["conditions"]}
        await cluster.delete_pod("urgent")
        await cluster.runs(second)


async def test_a_node_that_kube_scheduler_refuses_is_left_for_another(
    cluster: SchedulingCluster,
) -> None:
    async with cluster.sharing(1, 1, objective="Packing"):
        await cluster.templates(6)
        noisy = workload_pod(6, FOREVER)
        await cluster.create_pod("noisy", noisy, labels=NOISY)
        crowded = (await cluster.runs("noisy"))["spec"]["nodeName"]
        # Its claim is allocated the GPU that is in use.
        await cluster.create_pod("quiet", workload_pod(6, FOREVER, affinity=away_from_noise()))
        assert (await cluster.runs("quiet"))["spec"]["nodeName"] != crowded
        # kube-scheduler may clear an allocation so soon that the same is tried once more.
        first, *others = dict.fromkeys(allocations(cluster, "quiet"))
        assert len(others) == 1
        assert first in {server["metadata"]["name"] for server in cluster.servers_on(crowded)}


async def test_a_slice_that_no_node_can_use_is_taken_back_in_the_words_of_kube_scheduler(
    cluster: SchedulingCluster,
) -> None:
    cluster.set_times(bind_within=1.0, unbound_node=3.0)
    async with cluster.sharing(1):
        await cluster.templates(6)
        await cluster.create_pod("noisy", workload_pod(6, FOREVER), labels=NOISY)
        await cluster.runs("noisy")
        await cluster.create_pod("quiet", workload_pod(6, FOREVER, affinity=away_from_noise()))
        await cluster.claim_waits("quiet", "BackOff", "anti-affinity")
        held = {(await cluster.claim_of("noisy"))["metadata"]["uid"]}
        await cluster.history.until(lambda: cluster.ledger().keys() == held)
        await cluster.delete_pod("noisy")
        await cluster.runs("quiet")


async def test_a_slice_is_kept_while_kube_scheduler_ends_other_pods_for_it(
    cluster: SchedulingCluster, api: Api, urgent: str
) -> None:
    cluster.set_times(bind_within=0.0)
    async with cluster.sharing(1) as (node,):
        await cluster.templates(6)
        # In a namespace without the cluster's kubelet, a Pod with a finalizer is only gone when the
        # test says so.
        container = {"name": "main", "image": "example.org/batch:1"}
        batch: Body = {"metadata": {"annotations": {}}, "spec": {"containers": [container]}}
        held = ["example.org/held"]
        await cluster.create_pod("noisy", batch, "default", labels=NOISY, finalizers=held)
        await cluster.history.until(
            lambda: (cluster.pod("noisy", "default") or batch)["spec"].get("nodeName")
        )
        quiet: Body = {
            "schedulingGates": [{"name": ALLOCATION_GATE}],
            "affinity": away_from_noise(namespaceSelector={}),
            "priorityClassName": urgent,
        }
        await cluster.create_pod("quiet", workload_pod(6, FOREVER, **quiet))
        await cluster.history.until(
            lambda: (cluster.pod("quiet") or {}).get("status", {}).get("nominatedNodeName") == node,
            what=lambda: cluster.pod("quiet"),
        )
        await cluster.create_pod("bystander", workload_pod(6))
        await cluster.succeeds("bystander")
        freed = {"metadata": {"finalizers": None}}
        (await api.patch("/api/v1/namespaces/default/pods/noisy", freed)).ok()
        await cluster.runs("quiet")
        assert len(allocations(cluster, "quiet")) == 1
