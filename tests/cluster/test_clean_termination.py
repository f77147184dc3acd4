"""MPS terminates the clients of a Pod before kubelet signals its programs, on a true kubelet."""

from __future__ import annotations

import asyncio

from cluster.cluster import Cluster
from cluster.gpus import NodeGPUs
from cluster.jobs import Jobs, all_ready, server_path
from cluster.test_logs import reading
from support.api import Api
from support.kubectl import Kubectl
from support.polling import until

CLIENT_OF_A_LAUNCHER = (
    "echo begins; trap 'echo SIGTERM; exit 143' TERM; fake-cuda alloc:100 forever & wait $!; "
    "echo client ended; while :; do sleep 0.1; done"
)
"""Kubernetes sends SIGTERM to the shell. The client does not handle it."""


async def test_a_client_is_terminated_before_sigterm_and_a_neighbour_loses_nothing(
    cluster: Cluster, gpus: NodeGPUs, api: Api, jobs: Jobs, kubectl: Kubectl
):
    await jobs.submit("neighbour", "alloc:100", "forever", memory="1Gi")
    neighbour = await jobs.running("neighbour")
    await jobs.submit_command("train", ["sh", "-c", CLIENT_OF_A_LAUNCHER], sleep=20)
    await jobs.running("train")
    name = f"--namespace={jobs.namespace}"
    session = asyncio.create_task(
        kubectl("exec", name, "train-1", "--", "fake-cuda", "alloc:10", "forever")
    )
    await until(lambda: len({**gpus.pids(0), **gpus.pids(1)}) == 3)
    async with reading(cluster, f"{jobs.namespace}/train", "--follow") as log:
        assert log.stdout is not None
        assert await log.stdout.readline() == b"begins\n"
        (await api.delete(jobs.pod_path("train-1"))).ok()
        said = (await log.communicate())[0].decode()
    assert "the MPS client has been terminated by the server" in said
    assert said.index("client ended") < said.index("SIGTERM")
    answer = await session
    assert "the MPS client has been terminated by the server" in f"{answer}"
    await jobs.running("train", attempt=2)
    status = await jobs.until("train", lambda status: len(status.get("attempts", ())) == 2)
    assert status["attempts"][0]["outcome"] == "PodDeleted"
    assert await jobs.running("neighbour") == neighbour
    assert len((await jobs.reaches("neighbour", "Running"))["attempts"]) == 1
    await api.until(server_path(), all_ready(2))
