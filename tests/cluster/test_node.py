from __future__ import annotations

import signal

import pytest

from cluster.cluster import PAUSE, Cluster
from cluster.plane import NODE_NAME
from cluster.pods import finished, logs, phase, restricted_pod
from support.api import Api


async def run(api: Api, namespace: str, name: str, script: str) -> None:
    pod = restricted_pod(name, PAUSE, ["sh", "-c", script])
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)).ok()


async def running(api: Api, namespace: str, name: str) -> dict:
    """Wait until a Pod runs; return what its container is and how often it was started."""
    pod = await api.until(
        f"/api/v1/namespaces/{namespace}/pods/{name}", lambda pod: phase(pod) == "Running"
    )
    status = pod["status"]["containerStatuses"][0]
    return {"id": status["containerID"], "restarts": status["restartCount"]}


def node_is_ready(node: dict) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


async def test_the_node_is_ready(cluster: Cluster, api: Api):
    node = await api.until(f"/api/v1/nodes/{NODE_NAME}", node_is_ready)
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")


async def test_a_restricted_pod_runs_as_user_1000(cluster: Cluster, api: Api, restricted: str):
    await run(api, restricted, "whoami", "id -u; grep Cap.*Eff /proc/self/status; exit 3")
    assert await finished(api, restricted, "whoami") == 3
    assert (await logs(api, restricted, "whoami")).split() == ["1000", "CapEff:", "0" * 16]


async def test_what_restricted_forbids_is_refused(cluster: Cluster, api: Api, restricted: str):
    pod = restricted_pod("root", PAUSE, ["sh"])
    pod["spec"]["securityContext"] = {}
    answer = await api.post(f"/api/v1/namespaces/{restricted}/pods", pod)
    assert answer.status == 403
    assert "violates PodSecurity" in answer.body["message"]


async def test_pods_reach_the_api_server(cluster: Cluster, api: Api, restricted: str):
    script = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null"
    await run(api, restricted, "caller", script)
    assert await finished(api, restricted, "caller") == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.parametrize("server", ["kubelet", "containerd"])
async def test_pods_live_on_while_a_server_is_started_anew(
    server: str, how: signal.Signals, cluster: Cluster, api: Api, restricted: str
):
    await run(api, restricted, "lasting", "while test ! -e /tmp/end; do sleep 0.1; done; exit 7")
    before = await running(api, restricted, "lasting")
    cluster.restart(server, how=how)
    await run(api, restricted, "next", "exit 5")
    assert await finished(api, restricted, "next") == 5, "Pods start again"
    assert await running(api, restricted, "lasting") == before
    cluster.execute(before["id"], "touch", "/tmp/end")
    assert await finished(api, restricted, "lasting") == 7
