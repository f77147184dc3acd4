"""Drains of nodes, and partitions whose server Pods no node takes, with the true scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import PARTITIONS, SERVERS, Jobs, all_ready, condition, server_path
from cluster.plane import NODE_NAME
from support.api import Api
from support.kubectl import Kubectl
from support.polling import poll

NODES = "/api/v1/nodes"
PACKED = ("packed-a", "packed-b")
"""Nodes of two GPUs each that only the scheduler knows: no kubelet runs on them."""


async def test_a_drain_waits_until_the_last_job_has_left_the_gpu(
    gpus: NodeGPUs, api: Api, jobs: Jobs, kubectl: Kubectl
):
    await jobs.submit("last", "alloc:900", "forever", memory="1Gi")
    container = await jobs.running("last")
    drain = (
        "drain",
        NODE_NAME,
        "--force",
        "--ignore-daemonsets",
        "--pod-selector=partita.dev/server",
    )
    try:
        refused = await kubectl(*drain, "--timeout=12s")
        assert refused.code != 0
        assert "disruption budget" in refused.err
        assert await jobs.running("last") == container, "its MPS server is where it was"
        await jobs.delete("last")
        (await kubectl(*drain, "--timeout=90s")).ok()
        poll(lambda: [gpus.mode(0), gpus.mode(1)] == [0, 0], what="the GPUs are given back")
    finally:
        (await kubectl("uncordon", NODE_NAME)).ok()
    await api.until(server_path(), all_ready(2))


@pytest.fixture
async def packed(partita: Cluster, api: Api) -> AsyncIterator[str]:
    """A label value of the two nodes that only the scheduler knows."""
    for name in PACKED:
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "pool": "packed"},
            },
        }
        (await api.post(NODES, node)).ok()
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        (await api.patch(f"{NODES}/{name}/status", {"status": status})).ok()
    yield "packed"
    for name in PACKED:
        await api.delete(f"{NODES}/{name}")


async def test_the_gpus_of_an_exclusive_partition_are_taken_from_one_node(packed: str, api: Api):
    """Else a job of two GPUs, which must be on one node, would never fit."""
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPartition",
        "metadata": {"name": "pairs"},
        "spec": {"gpus": 2, "nodeSelector": {"pool": packed}, "sharing": {"mode": "Exclusive"}},
    }
    (await api.post(PARTITIONS, body)).ok()
    try:
        nodes = [
            (
                await api.until(
                    f"/api/v1/namespaces/{SERVERS}/pods/pairs-{number}",
                    lambda pod: pod["spec"].get("nodeName"),
                )
            )["spec"]["nodeName"]
            for number in range(2)
        ]
        assert len(set(nodes)) == 1
    finally:
        await api.delete(f"{PARTITIONS}/pairs")
        for name in PACKED:
            await api.delete(f"{NODES}/{name}")
        await api.gone(server_path("pairs-0"))
        await api.gone(server_path("pairs-1"))


async def test_a_partition_that_no_node_can_serve_says_so_in_the_schedulers_words(
    shared: str, api: Api
):
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPartition",
        "metadata": {"name": "unknown"},
        "spec": {"gpus": 1, "gpuSelector": {"products": ["NVIDIA-B300"]}},
    }
    (await api.post(PARTITIONS, body)).ok()
    try:
        found = await api.until(
            f"{PARTITIONS}/unknown",
            lambda partition: condition(partition, "Degraded").get("reason") == "Unschedulable",
        )
        said = condition(found, "Degraded")["message"]
        assert "nodes are available" in said
        assert "spec.gpuSelector.products" in said
        assert condition(found, "Ready")["status"] == "False"
        (gpu,) = found["status"]["gpuSummary"]
        assert "didn't match Pod's node affinity" in gpu["message"]
    finally:
        await api.delete(f"{PARTITIONS}/unknown")
        await api.gone(server_path("unknown-0"))
