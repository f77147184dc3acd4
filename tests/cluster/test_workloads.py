"""Pods of Kubernetes' own controllers get slices by claims, on a true kubelet and containerd."""

from __future__ import annotations

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.plane import NODE_NAME
from cluster.pods import logs
from cluster.workloads import Workloads, allocated_once, container_of, nothing_left, uid
from support.api import Api
from support.kubectl import Kubectl
from support.polling import poll, until

JOB_NEVER_AGAIN = {"backoffLimit": 0}


async def test_one_that_overruns_is_refused_and_its_neighbour_is_not(
    gpus: NodeGPUs, api: Api, workloads: Workloads
):
    await workloads.make("Deployment", "neighbour", "fake-cuda", "alloc:900", "forever")
    (before,) = await workloads.running("neighbour")
    await workloads.make(
        "Job", "greedy", "fake-cuda", "alloc:900", "alloc:600", "forever", **JOB_NEVER_AGAIN
    )
    pod, code = await workloads.ends("greedy")
    assert code == 1
    assert "out of memory" in await logs(api, workloads.namespace, pod)
    (after,) = await workloads.running("neighbour")
    assert container_of(after) == container_of(before)


async def test_one_that_takes_off_its_limit_is_stopped(
    gpus: NodeGPUs, api: Api, workloads: Workloads
):
    await workloads.make(
        "Job", "thief", "fake-cuda", "unset", "alloc:2048", "forever", **JOB_NEVER_AGAIN
    )
    _, code = await workloads.ends("thief")
    assert code != 0
    poll(lambda: not gpus.programs(), what="it is off the GPU")


async def test_a_deployment_is_scaled_and_rolled_out(
    cluster: Cluster, gpus: NodeGPUs, api: Api, workloads: Workloads
):
    async with allocated_once(api):
        steps = ("fake-cuda", "alloc:900", "forever")
        await workloads.make("Deployment", "serve", *steps, replicas=1)
        await workloads.running("serve")
        await workloads.scale("serve", 5)
        await workloads.running("serve", 5)
        poll(lambda: len(gpus.programs()) == 5)
        await workloads.scale("serve", 1)
        (last,) = await workloads.running("serve")
        await only(api, workloads, 1)
        changed = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        (await api.patch(workloads.path("Deployment", "serve"), changed)).ok()
        await workloads.running("serve", without=[uid(last)])
        await only(api, workloads, 1)
        await workloads.delete("Deployment", "serve")
        await nothing_left(cluster, api, workloads.namespace)


async def only(api: Api, workloads: Workloads, count: int) -> None:
    """Wait until so many claims are left, as Pods that have ended give theirs back."""

    async def left() -> bool:
        return len(await workloads.claims()) == count

    await until(left, what=f"{count} claims")


async def test_a_drained_node_gives_its_slices_back_and_takes_them_again(
    cluster: Cluster, gpus: NodeGPUs, api: Api, workloads: Workloads, kubectl: Kubectl
):
    await workloads.make("Deployment", "moved", "fake-cuda", "alloc:900", "forever")
    (before,) = await workloads.running("moved")
    async with allocated_once(api):
        try:
            drain = ("drain", NODE_NAME, "--force", "--ignore-daemonsets")
            (await kubectl(*drain, "--pod-selector=app=moved")).ok()
            await api.gone(workloads.path("Pod", before["metadata"]["name"]))
            poll(lambda: not gpus.programs(), what="it is off the GPU")
        finally:
            (await kubectl("uncordon", NODE_NAME)).ok()
        await workloads.running("moved", without=[uid(before)])
