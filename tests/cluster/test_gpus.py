from __future__ import annotations

import itertools

from cluster.cluster import PAUSE, Cluster
from cluster.gpus import NodeGPUs
from cluster.nvidia_runtime import STATE
from cluster.plane import NODE_NAME
from cluster.pods import finished, logs, phase, restricted_pod
from gpu.fake import uuid_of
from support.api import Api
from support.polling import until

ONE = {"limits": {"nvidia.com/gpu": 1}}


async def offered(api: Api, count: int) -> None:
    await api.until(
        f"/api/v1/nodes/{NODE_NAME}",
        lambda node: node["status"]["allocatable"].get("nvidia.com/gpu") == str(count),
    )


async def start(api: Api, namespace: str, name: str, script: str) -> None:
    pod = restricted_pod(name, PAUSE, ["sh", "-c", script], resources=ONE)
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)).ok()


async def test_the_node_offers_its_gpus(cluster: Cluster, gpus: NodeGPUs, api: Api):
    await offered(api, 2)


async def test_a_pod_that_asks_for_one_gets_it_and_the_driver(
    cluster: Cluster, gpus: NodeGPUs, api: Api, restricted: str
):
    await offered(api, 2)
    await start(api, restricted, "user", f"ls {STATE}; env | grep NVIDIA")
    assert await finished(api, restricted, "user") == 0
    said = (await logs(api, restricted, "user")).split()
    assert {"driver", "driver.sock", "gpu-0", "gpu-1"} <= set(said)
    assert said[-1] in {f"NVIDIA_VISIBLE_DEVICES={uuid_of(n)}" for n in range(2)}


async def test_a_pod_that_asks_for_none_gets_nothing(
    cluster: Cluster, gpus: NodeGPUs, api: Api, restricted: str
):
    pod = restricted_pod("other", PAUSE, ["sh", "-c", f"! test -e {STATE} && ! env | grep NVIDIA"])
    (await api.post(f"/api/v1/namespaces/{restricted}/pods", pod)).ok()
    assert await finished(api, restricted, "other") == 0


async def test_a_third_pod_waits_until_a_gpu_is_given_back(
    cluster: Cluster, gpus: NodeGPUs, api: Api, restricted: str
):
    await offered(api, 2)
    for name in ("first", "second"):
        await start(api, restricted, name, "sleep 3600")
        path = f"/api/v1/namespaces/{restricted}/pods/{name}"
        await api.until(path, lambda pod: phase(pod) == "Running")
    await start(api, restricted, "third", "exit 0")
    await api.until(
        f"/api/v1/namespaces/{restricted}/pods/third",
        lambda pod: "Insufficient nvidia.com/gpu" in str(pod["status"].get("conditions")),
    )
    await api.delete(f"/api/v1/namespaces/{restricted}/pods/first")
    assert await finished(api, restricted, "third") == 0


async def test_gpus_are_offered_again_after_a_kubelet_has_started_anew(
    cluster: Cluster, gpus: NodeGPUs, api: Api, restricted: str
):
    cluster.restart("kubelet")
    # The node's status has them all the time, so a kubelet that does not know of them yet is sent
    # Pods and refuses them: UnexpectedAdmissionError.
    names = (f"user-{attempt}" for attempt in itertools.count())

    async def succeeds() -> bool:
        name = next(names)
        await start(api, restricted, name, "exit 0")
        path = f"/api/v1/namespaces/{restricted}/pods/{name}"
        ended = await api.until(path, lambda pod: phase(pod) in {"Succeeded", "Failed"}, 60)
        if phase(ended) == "Failed":
            assert ended["status"]["reason"] == "UnexpectedAdmissionError"
        return phase(ended) == "Succeeded"

    await until(succeeds, 60, what="kubelet does not know of the GPUs again")
