"""Simulated nodes against an API server: Pods, GPUServers, faults and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from nodes.simulated_cluster import SERVERS, terminated
from partita.kube.errors import KubernetesError
from partita_testcluster.nodes import NodeSpec, node_specs, run_nodes
from support.api import condition
from support.polling import TIMEOUT

GIB = 1 << 30


async def with_a_job(cluster) -> tuple[str, dict[str, Any]]:
    """Have a job run on a GPUServer; return the name of that and its object."""
    name = await cluster.server()
    server = await cluster.ready(name)
    await cluster.job("a", server, duration="1h")
    await cluster.phase("a", "Running")
    return name, server


async def test_a_server_pod_that_goes_ends_its_clients(cluster, nodes, node_spec) -> None:
    async with nodes.running(node_spec()):
        name, server = await with_a_job(cluster)
        await cluster.api.delete(f"{cluster.pods}/{name}")
        await cluster.api.gone(f"{cluster.pods}/{name}")
        lost = await cluster.ended("a")
        stopped = (await cluster.api.get(f"{SERVERS}/{name}")).ok().body
        await cluster.server_pod(name)
        again = await cluster.ready(name)
    assert "cudaErrorMpsClientTerminated" in terminated(lost)["message"]
    assert condition(stopped, "Ready") == ("False", "AgentStopped")
    assert stopped["status"]["mps"] == {"state": "Stopped", "clients": 0}
    assert again["status"]["uuid"] == server["status"]["uuid"]


async def annotate(cluster, path: str, fault: str) -> None:
    patch = {"metadata": {"annotations": {"sim.partita.dev/fault": fault}}}
    (await cluster.api.patch(path, patch)).ok()


async def test_a_fault_is_reported_and_recovered_from(cluster, nodes, node_spec) -> None:
    async with nodes.running(node_spec()):
        name, _ = await with_a_job(cluster)
        path = f"{SERVERS}/{name}"
        async with cluster.api.watch(
            path.rsplit("/", 1)[0], fieldSelector=f"metadata.name={name}"
        ) as seen:
            await annotate(cluster, path, "xid")
            while condition(faulted := (await seen.next())[1], "Faulted")[0] != "True":
                pass
        lost = await cluster.ended("a")
        await cluster.release("a", name)
        healthy = await cluster.ready(name)
        await cluster.job("b", healthy, duration="1s")
        assert (await cluster.ended("b"))["status"]["phase"] == "Succeeded"
    assert condition(faulted, "Faulted") == ("True", "XidError")
    assert condition(faulted, "Ready") == ("False", "XidError")
    assert faulted["status"]["mps"]["state"] == "Faulted"
    assert terminated(lost)["exitCode"] == 1
    assert condition(healthy, "Faulted") == ("False", "Healthy")
    assert "sim.partita.dev/fault" not in healthy["metadata"].get("annotations", {})


async def test_a_node_that_is_gone_is_silent_and_comes_back(cluster, nodes, node_spec) -> None:
    spec = node_spec(gpus=1)
    async with nodes.running(spec):
        name, _ = await with_a_job(cluster)
        await cluster.api.delete(f"/api/v1/nodes/{spec.name}")
        assert (await cluster.api.get(cluster.path("a"))).body["status"]["phase"] == "Running"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name}}
        (await cluster.api.post("/api/v1/nodes", node)).ok()
        lost = await cluster.ended("a")
        await cluster.job("b", await cluster.ready(name), duration="1s")
        assert (await cluster.ended("b"))["status"]["phase"] == "Succeeded"
    assert terminated(lost)["reason"] == "ContainerStatusUnknown"


async def test_what_runs_goes_on_after_a_restart(cluster, nodes, node_spec) -> None:
    spec = node_spec(gpus=3)
    async with nodes.running(spec, speed=10.0):
        names = [await cluster.server(), await cluster.server()]
        before = [await cluster.ready(name) for name in names]
        await cluster.job("a", before[1], duration="30s", memory="1Gi")
        await cluster.job("gone", before[0], duration="1h")
        running = await cluster.phase("a", "Running", "Succeeded")
        await cluster.phase("gone", "Running")
    await cluster.api.delete(cluster.path("gone"))
    async with nodes.running(spec, speed=10.0):
        ended = await cluster.ended("a")
        after = [await cluster.ready(name) for name in names]
        await cluster.api.gone(cluster.path("gone"))
    assert [s["status"]["uuid"] for s in after] == [s["status"]["uuid"] for s in before]
    assert ended["status"]["startTime"] == running["status"]["startTime"]
    assert ended["status"]["phase"] == "Succeeded"


async def test_a_pod_bound_to_a_node_without_room_is_refused(cluster, nodes, node_spec) -> None:
    spec = node_spec(gpus=1)
    async with nodes.running(spec):
        await cluster.pod("a", {"nvidia.com/gpu": 2}, nodeName=spec.name)
        refused = await cluster.ended("a")
    assert refused["status"]["reason"] == "UnexpectedAdmissionError"


async def test_a_speed_of_nothing_is_refused(api_server) -> None:
    with pytest.raises(ValueError, match="write a number above 0"):
        await run_nodes(api_server.kubeconfig, nodes=[], stop=asyncio.Event(), speed=0)


async def test_a_fault_that_cannot_be_leaves_the_gpu_healthy(cluster, nodes, node_spec) -> None:
    async with nodes.running(node_spec(gpus=1)):
        name = await cluster.server("TimeSlicing")
        server = await cluster.ready(name)
        for fault in ("mps", "fire"):
            await annotate(cluster, f"{SERVERS}/{name}", fault)
        await cluster.job("a", server, duration="1s")
        assert (await cluster.ended("a"))["status"]["phase"] == "Succeeded"
        after = (await cluster.api.get(f"{SERVERS}/{name}")).ok().body
    assert condition(after, "Faulted") == ("False", "Healthy")


async def test_nodes_that_may_not_look_at_pods_say_so(api_server, tmp_path) -> None:
    config = Configuration(host=api_server.url + "/nowhere")
    if api_server.certificate:
        config.ssl_ca_cert = str(api_server.certificate)
    with pytest.raises(KubernetesError):
        async with asyncio.timeout(TIMEOUT):
            await run_nodes(config, nodes=[NodeSpec("a")], stop=asyncio.Event())


def test_gpus_are_spread_over_nodes() -> None:
    specs = node_specs(5, 80 * GIB)
    assert [(s.name, s.gpus) for s in specs] == [("sim-0", 2), ("sim-1", 2), ("sim-2", 1)]
    assert {s.product for s in specs} == {"NVIDIA A100-SXM4-80GB"}
    assert node_specs(1, 7 * GIB)[0].product == "NVIDIA Simulated GPU"
