"""The agent's watch of its GPUServer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from agent.claims import allocate_claim
from agent.node import GROUP, QUICK, Node, serve
from partita.agent.server_watch import server_versions
from partita.kube.client import Kube
from partita.kube.connect import connect
from partita.times import Times
from support.polling import until


async def test_it_shows_each_version_of_its_own_gpuserver_alone(
    node: Node,
):
    await node.create()
    other = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUServer",
        "metadata": {"name": f"{node.name}-other"},
        "spec": {"partition": "gpus"},
    }
    (await node.api.post(f"{GROUP}/gpuservers", other)).ok()
    seen: set[tuple[str, int]] = set()
    sent = 0
    async with connect(str(node.kubeconfig)) as api:

        async def take() -> None:
            nonlocal sent
            kube = Kube(api, times=Times(watch=1.0))  # it is opened again several times
            async for body in server_versions(kube, node.name):
                seen.add((body["metadata"]["name"], body["spec"]["maxJobs"]))
                sent += 1

        task = asyncio.create_task(take())
        try:
            await until(lambda: sent >= 3)
            (await node.api.patch(node.path, {"spec": {"maxJobs": 5}})).ok()
            await until(lambda: (node.name, 5) in seen)
        finally:
            task.cancel()
    assert {name for name, _ in seen} == {node.name}


async def test_an_allocation_arrives_without_a_read_of_the_ledger(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    await serve(node)
    assert node.agent is not None
    ledger = node.agent.jobs.ledger

    async def read() -> None:
        raise AssertionError("the ledger was read")

    monkeypatch.setattr(ledger, "read", read)
    job = await allocate_claim(node, "train", job=True)
    await until(lambda: (job.uid, job.pod["metadata"]["uid"]) in ledger.allocations)
    await job.release()
    await until(lambda: not ledger.allocations)


async def test_an_agent_without_its_gpuserver_says_so(node: Node):
    node.times = replace(QUICK, server_missed_every=0.05)
    with structlog.testing.capture_logs() as logs:
        node.start_agent()
        await until(lambda: any("waiting for the GPUServer" in entry["event"] for entry in logs))
        await node.create()
        await until(lambda: node.agent is not None and node.agent.jobs.ledger.loaded.is_set())
