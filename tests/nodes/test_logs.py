"""What simulated programs print, and who reads it: the API's `pods/log`, kubectl's way."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

import pytest

from support.api import Answer
from support.clusters import ApiServer


@pytest.fixture(autouse=True)
def kubelets_reachable(api_server: ApiServer) -> None:
    if api_server.kind != "embedded":
        pytest.skip("a real API server reaches kubelets by HTTPS only; these speak HTTP")


async def log_of(cluster, pod: str, **query: str | int) -> Answer:
    return await cluster.api.get(f"{cluster.path(pod)}/log", **query)


async def test_a_program_prints_its_progress_and_its_end(cluster, nodes, node_spec) -> None:
    async with nodes.running(node_spec(gpus=1)):
        server = await cluster.ready(await cluster.server())
        await cluster.job("good", server, limit="0=4096M", duration="20s", memory="1Gi,3Gi")
        await cluster.phase("good", "Running", "Succeeded")
        whole = (await log_of(cluster, "good", follow="true")).ok().body
        await cluster.ended("good")
        end = (await log_of(cluster, "good", tailLines=2, container="main")).ok().body
        stamped = (await log_of(cluster, "good", tailLines=1, timestamps="true")).ok().body
        none = (await log_of(cluster, "good", tailLines=0)).ok().body
    uuid = server["status"]["uuid"]
    assert whole.splitlines()[:2] == [
        "simulated: example.org/image:1",
        f"{uuid} has 40.00 GiB of memory, of which it may use 4.00 GiB",
    ]
    speed = "running at 100% of the speed of a job alone"
    progress = [line for line in whole.splitlines() if "% done" in line]
    assert progress[0] == f" 10 % done, 1.00 GiB of GPU memory, {speed}"
    assert progress[-1] == f" 90 % done, 3.00 GiB of GPU memory, {speed}"
    assert end == f"{progress[-1]}\nexit code 0\n"
    assert whole.endswith(end), "it was followed to its end"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z exit code 0\n", stamped)
    assert none == ""


async def test_when_the_nodes_stop_a_followed_log_does_not_end_its_pod(
    cluster, nodes, node_spec
) -> None:
    api = cluster.api
    async with AsyncExitStack() as following:
        async with nodes.running(node_spec(gpus=1)):
            await cluster.job("a", await cluster.ready(await cluster.server()), duration="1h")
            await cluster.phase("a", "Running")
            url = f"{api._url}{cluster.path('a')}/log?follow=true"
            log = await following.enter_async_context(api._session.get(url, ssl=api._ssl))
            assert await log.content.readline() == b"simulated: example.org/image:1\n"
        pod = (await api.get(cluster.path("a"))).ok().body
    assert pod["status"]["phase"] == "Running"


async def test_what_has_no_log_says_why(cluster, nodes, node_spec) -> None:
    async with nodes.running(node_spec(gpus=1)):
        server = await cluster.ready(await cluster.server())
        await cluster.job("stuck", server, not_starting="ImagePullBackOff")
        await cluster.job("good", server, duration="1s")
        await cluster.phase("stuck", "Pending")
        await cluster.api.until(
            cluster.path("stuck"), lambda p: p.get("status", {}).get("containerStatuses")
        )
        await cluster.ended("good")
        answers = [
            await log_of(cluster, "stuck"),
            await log_of(cluster, "good", previous="true"),
            await log_of(cluster, "good", container="other"),
            await log_of(cluster, "nosuch"),
            await log_of(cluster, "good", sinceSeconds=5),
        ]
        await cluster.api.delete(cluster.path("good"), {"gracePeriodSeconds": 0})
        await cluster.pod("pending", {"nvidia.com/gpu": 9})
        pending = await log_of(cluster, "pending")
    assert [(a.status, a.body["message"]) for a in answers] == [
        (400, 'container "main" in pod "stuck-1" is waiting to start: ImagePullBackOff'),
        (400, 'previous terminated container "main" in pod "good-1" not found'),
        (400, "container other is not valid for pod good-1"),
        (404, 'pods "nosuch" not found'),
        (400, "query parameter not supported here: sinceSeconds"),
    ]
    assert (pending.status, pending.body) == (200, "")
