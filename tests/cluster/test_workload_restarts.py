"""Workloads with slices while the agents are killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import SERVERS, all_ready, server_path
from cluster.workloads import Workloads, nothing_left
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


def kill_processes(container: str) -> None:
    """Kill the processes of a container, which its cgroup names, at once."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if container in (process / "cgroup").read_text():
                os.kill(int(process.name), signal.SIGKILL)


def state(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a Pod's only container."""
    found: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]
    return found
