"""Workloads with slices while the agent, kubelet or the operator is killed and starts anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import SERVERS, all_ready, server_path
from cluster.operator_writes import kill_operator, kill_processes
from cluster.workloads import Workloads, allocated_once, nothing_left
from support.api import Api

STEPS = ("fake-cuda", "alloc:900", "forever")
KILL_AGAIN_AFTER = 0.2
"""Seconds. An agent needs longer from its start until kubelet knows it."""


async def test_without_agents_no_pod_starts_or_ends_until_they_are_back(
    cluster: Cluster, gpus: NodeGPUs, api: Api, workloads: Workloads
):
    """What Kubernetes says of a Pod names the driver that is missing."""
    await workloads.make("Pod", "leaving", *STEPS)
    await workloads.running("leaving")
    path = workloads.path("Pod", "leaving")
    async with without_agents(cluster, api):
        await workloads.make("Pod", "late", *STEPS)
        await api.until(
            f"/api/v1/namespaces/{workloads.namespace}/events",
            lambda events: any(map(driver_is_missing, events["items"])),
        )
        await api.delete(path)
        # Its program has ended, and nobody unprepares its claim.
        await api.until(path, lambda pod: "terminated" in state(pod))
        assert (await api.get(path)).status == 200
    await api.gone(path)
    await workloads.running("late")
    await workloads.delete("Pod", "late")
    await nothing_left(cluster, api, workloads.namespace)
    await api.until(server_path(), all_ready(2))


def driver_is_missing(event: dict[str, Any]) -> bool:
    """Say whether an Event about the Pod `late` tells that its node lacks the driver."""
    about = event["involvedObject"].get("name"), event["reason"]
    words = "gpu.partita.dev" in event["message"]
    return about == ("late", "FailedPrepareDynamicResources") and words


@asynccontextmanager
async def without_agents(cluster: Cluster, api: Api) -> AsyncIterator[None]:
    """Kill the agents, and each that kubelet starts again while the block runs."""

    def kill() -> None:
        for container in cluster.containers(SERVERS, "agent"):
            kill_processes(container)

    async def kill_again() -> None:
        while True:
            await asyncio.sleep(KILL_AGAIN_AFTER)
            kill()

    kill()
    killing = asyncio.create_task(kill_again())
    try:
        yield
        assert not killing.done(), killing
    finally:
        killing.cancel()
        await asyncio.wait({killing})


def state(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a Pod's only container."""
    found: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]
    return found


async def test_nothing_is_allocated_twice_or_left_when_the_operator_is_killed_at_its_writes(
    cluster: Cluster,
    gpus: NodeGPUs,
    api: Api,
    workloads: Workloads,
):
    """It makes some more until it is dead, so that it is killed less often than it writes."""
    kills: list[int] = []
    killing = asyncio.create_task(kill_operator(cluster, api, kills))
    try:
        async with allocated_once(api):
            await workloads.make("Deployment", "serve", *STEPS, replicas=5)
            await workloads.running("serve", 5)
            await workloads.delete("Deployment", "serve")
            await nothing_left(cluster, api, workloads.namespace)
        assert not killing.done(), killing
    finally:
        killing.cancel()
        await asyncio.wait({killing})
    assert len(kills) >= 3, kills
