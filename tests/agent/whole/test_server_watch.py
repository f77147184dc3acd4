"""The agent's watch of its GPUServer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog

from agent.claims import allocate_claim
from agent.node import QUICK, Node, serve
from support.polling import until


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
