"""The operator allocates claims, and kube-scheduler binds their Pods and allocates none."""

from __future__ import annotations

from typing import Any

from support.api import Api
from versions.cluster import HOSTNAME, Cluster, node_of, unscheduled

CAPACITY = {"memory": "6Gi", "threads": "50"}
GIB = 1 << 30


def has_devices_with_capacity(version: str) -> bool:
    """Say whether a version keeps capacity, share IDs and taints (DRAConsumableCapacity)."""
    return version not in {"1.34", "1.35"}


async def test_a_pod_is_bound_to_the_node_of_its_slice(version: str, cluster: Cluster):
    """The amounts are annotations, which every version keeps."""
    await cluster.create_pod("serve", memory="6Gi")
    claim = await cluster.bound("serve")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert ("shareID" in result) == has_devices_with_capacity(version)
    (config,) = claim["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"]["memory"] == "6Gi"
    await cluster.delete_pod("serve")
    await cluster.nothing_allocated()


async def test_a_template_says_the_amounts_where_the_version_keeps_them(
    version: str, cluster: Cluster
):
    await cluster.create_pod("serve", memory="", capacity=CAPACITY)
    claim = await cluster.bound("serve")
    (config,) = claim["status"]["allocation"]["devices"]["config"]
    parameters = config["opaque"]["parameters"]
    if has_devices_with_capacity(version):
        assert (parameters["memory"], parameters["threadPercent"]) == ("6Gi", 50)
    else:
        assert "capacity" not in claim["spec"]["devices"]["requests"][0]["exactly"]


async def test_kube_scheduler_waits_for_the_operator(cluster: Cluster):
    with cluster.operator_stopped():
        await cluster.create_pod("serve")
        pod = await cluster.pod_until("serve", unscheduled)
        assert "cannot allocate all claims" in unscheduled(pod)
        assert not await cluster.is_allocated("serve")
    await cluster.bound("serve")


async def test_kube_scheduler_may_not_allocate_by_a_class_of_somebody_else(
    version: str, cluster: Cluster, api: Api
):
    """Before 1.36, devices have no taint that would tell it so: admission does."""
    expression = "device.driver == 'gpu.partita.dev'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    (await api.post(path, {"metadata": {"name": "open"}, "spec": spec})).ok()
    try:
        await cluster.create_pod("sly", device_class="open")
        pod = await cluster.pod_until("sly", unscheduled)
        if has_devices_with_capacity(version):
            assert "cannot allocate all claims" in unscheduled(pod)
        else:
            assert "only Partita's operator allocates devices" in unscheduled(pod)
        assert not await cluster.is_allocated("sly")
    finally:
        await api.delete(f"{path}/open")


def apart_from(label: str) -> dict[str, Any]:
    """A rule that the operator does not know: not on a node with a Pod of this label."""
    term = {
        "labelSelector": {"matchLabels": {"app": label}},
        "topologyKey": HOSTNAME,
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def test_an_allocation_that_is_not_bound_is_taken_back(cluster: Cluster):
    """The claim says why in kube-scheduler's words, and others may use the GPU meanwhile."""
    node, _ = await cluster.nodes_with_gpus()
    await cluster.create_plain_pod("web", "web", nodeName=node)
    only = {HOSTNAME: node}
    await cluster.create_pod("serve", affinity=apart_from("web"), nodeSelector=only)
    said = await cluster.claim_says("serve", "BackOff", "anti-affinity")
    assert node in said
    await cluster.create_pod("other", memory="35Gi", nodeSelector=only)
    await cluster.bound("other")
    await cluster.delete_pod("other")
    await cluster.delete_pod("web")
    await cluster.bound("serve")


async def test_kube_scheduler_clears_an_allocation_that_fits_another_node(cluster: Cluster):
    first, second = await cluster.nodes_with_gpus()
    await cluster.create_plain_pod(f"web-{first}", "web", nodeName=first)
    # Only the GPU of the first node has room.
    await cluster.create_pod("large", memory="35Gi", nodeSelector={HOSTNAME: second})
    await cluster.bound("large")
    await cluster.create_pod("serve", affinity=apart_from("web"))
    await cluster.claim_says("serve", "not bound", "anti-affinity")
    await cluster.delete_pod("large")
    claim = await cluster.bound("serve")
    assert node_of(claim) == second
