"""Workloads with slices while the agent, kubelet or the operator is killed and starts anew."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import SERVERS, SYSTEM, all_ready, kill_container, server_path
from cluster.workloads import Workloads, allocated_once, container_of, nothing_left
from support.api import Api
from support.polling import poll, until

STEPS = ("fake-cuda", "alloc:900", "forever")
RESTARTED_SECONDS = 120
"""For what waits for a program that kubelet starts anew, whose delay grows with each end."""


@pytest.mark.parametrize("what", ["kubelet", "agent"])
async def test_pods_keep_their_slices_and_others_get_theirs_when_it_is_killed(
    what: str, cluster: Cluster, gpus: NodeGPUs, api: Api, workloads: Workloads
):
    await workloads.make("Deployment", "lasting", *STEPS)
    (before,) = await workloads.running("lasting")
    poll(lambda: len(gpus.programs()) == 1)
    programs = gpus.programs()
    async with allocated_once(api):
        if what == "kubelet":
            cluster.restart("kubelet", how=signal.SIGKILL)
        else:
            await kill_container(cluster, api, SERVERS, "agent")
        await workloads.make("Deployment", "next", *STEPS)
        await workloads.running("next")
        (after,) = await workloads.running("lasting")
        assert container_of(after) == container_of(before)
        assert programs.items() <= gpus.programs().items()
        for name in ("lasting", "next"):
            await workloads.delete("Deployment", name)
        await nothing_left(cluster, api, workloads.namespace)
    await api.until(server_path(), all_ready(2))


async def test_a_pod_that_is_deleted_while_the_agents_are_away_ends_when_they_are_back(
    cluster: Cluster, gpus: NodeGPUs, api: Api, workloads: Workloads
):
    await workloads.make("Pod", "leaving", *STEPS)
    await workloads.running("leaving")
    await kill_container(cluster, api, SERVERS, "agent")
    await api.delete(workloads.path("Pod", "leaving"))
    await api.until(server_path(), all_ready(2), seconds=RESTARTED_SECONDS)
    await api.gone(workloads.path("Pod", "leaving"))
    await nothing_left(cluster, api, workloads.namespace)


def waits(claim: dict[str, Any]) -> bool:
    return "allocation" not in claim.get("status", {})


def is_allocated(claim: dict[str, Any]) -> bool:
    return not waits(claim)


@pytest.mark.parametrize("moment", [waits, is_allocated], ids=lambda moment: moment.__name__)
async def test_nothing_is_allocated_twice_when_the_operator_is_killed(
    moment: Callable[[dict[str, Any]], bool],
    cluster: Cluster,
    gpus: NodeGPUs,
    api: Api,
    workloads: Workloads,
):
    async with allocated_once(api):
        await workloads.make("Deployment", "serve", *STEPS, replicas=3)

        async def come() -> bool:
            return any(moment(claim) for claim in await workloads.claims())

        await until(come, what=moment.__name__)
        await kill_container(cluster, api, SYSTEM, "operator")
        await workloads.running("serve", 3)
        await kill_container(cluster, api, SYSTEM, "operator")
        await workloads.delete("Deployment", "serve")
        await nothing_left(cluster, api, workloads.namespace)
