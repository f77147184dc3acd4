"""The operator allocates claims, and kube-scheduler binds their Pods and allocates none.

On this version devices have no capacity and no taints (DRAConsumableCapacity, DRADeviceTaints).
"""

from __future__ import annotations

from support.api import Api
from versions.cluster import Cluster, unscheduled


async def test_kube_scheduler_waits_for_the_operator_and_binds_a_pod_to_the_node_of_its_slice(
    cluster: Cluster,
):
    with cluster.operator_stopped():
        await cluster.create_pod("serve")
        pod = await cluster.pod_until("serve", unscheduled)
        assert "cannot allocate all claims" in unscheduled(pod)
        assert not await cluster.is_allocated("serve")
    claim = await cluster.bound("serve")
    (config,) = claim["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"]["memory"] == "6Gi"
    await cluster.delete_pod("serve")
    await cluster.nothing_allocated()


async def test_kube_scheduler_may_not_allocate_by_a_class_of_somebody_else(
    cluster: Cluster, api: Api
):
    expression = "device.driver == 'gpu.partita.dev'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    (await api.post(path, {"metadata": {"name": "open"}, "spec": spec})).ok()
    try:
        await cluster.create_pod("sly", device_class="open")
        pod = await cluster.pod_until("sly", unscheduled)
        assert "only Partita's operator allocates devices" in unscheduled(pod)
        assert not await cluster.is_allocated("sly")
    finally:
        await api.delete(f"{path}/open")
