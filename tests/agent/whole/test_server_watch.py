"""The agent's watch of its GPUServer."""

from __future__ import annotations

import pytest

from agent.claims import allocate_claim
from agent.node import Node, serve
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
