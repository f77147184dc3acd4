"""Several GPUs on one node: kubelet asks any agent, and that of the claim's GPU prepares it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.claims import Driver, allocate_claim
from agent.node import Node, serve
from gpu.fake import MIB, FakeGPUs
from partita.agent.dra import plugin as dra_plugin
from support.api import Api
from support.clusters import ApiServer


@pytest.fixture
async def other(
    node: Node, api: Api, api_server: ApiServer, namespace: str, fake_gpus: FakeGPUs
) -> AsyncIterator[Node]:
    """The node's other GPU, with the same kubelet."""
    fake_gpus.add(1, context=300 * MIB)
    made = Node(api, api_server, namespace, fake_gpus, gpu=1)
    made.kubelet.folder = node.kubelet.folder
    yield made
    await made.stop_agent()
    await made.stop_mps()
    await api.delete(made.path)


async def start_both(node: Node, other: Node) -> Driver:
    await serve(node)
    await other.create_server()
    node.kubelet.gives(other.name, other.uuid, namespace=other.namespace)
    other.start_agent()
    other.start_mps()
    await other.is_ready()
    return Driver(node.kubelet.folder)


async def test_each_agent_prepares_claims_of_its_own_gpu(node: Node, other: Node):
    driver = await start_both(node, other)
    claim = await allocate_claim(other, "serve")
    prepared = await driver.prepare(node.name, claim)
    assert prepared.error == ""
    assert prepared.devices[0].pool_name == other.name
    assert claim.environment["NVIDIA_VISIBLE_DEVICES"] == other.uuid
    assert await driver.prepare(other.name, claim) == prepared
    assert await driver.unprepare(node.name, claim) == ""
    assert not claim.file.exists()


async def test_a_claim_whose_agent_is_gone_is_refused_and_unprepared(node: Node, other: Node):
    driver = await start_both(node, other)
    claim = await allocate_claim(other, "serve")
    assert (await driver.prepare(other.name, claim)).error == ""
    await other.kill_agent()
    error = (await driver.prepare(node.name, claim)).error
    assert f"GPUServer {other.name}, whose agent does not run on this node" in error
    assert claim.file.exists()
    assert await driver.unprepare(node.name, claim) == ""
    assert not claim.file.exists()


async def test_a_claim_waits_for_the_agent_of_its_gpu_that_restarts(
    node: Node, other: Node, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dra_plugin, "PREPARE_WITHIN", 30.0)
    driver = await start_both(node, other)
    claim = await allocate_claim(other, "serve")
    await other.kill_agent()
    preparing = asyncio.create_task(driver.prepare(node.name, claim))
    other.start_agent()
    assert (await preparing).error == ""
    assert claim.environment["NVIDIA_VISIBLE_DEVICES"] == other.uuid


async def test_a_pod_ends_while_all_agents_but_that_of_another_gpu_are_gone(
    node: Node, other: Node, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dra_plugin, "PREPARE_WITHIN", 30.0)  # the agent that comes back checks MPS
    driver = await start_both(node, other)
    claims = [await allocate_claim(one, name) for one, name in ((node, "a"), (other, "b"))]
    for claim in claims:
        assert (await driver.prepare(node.name, claim)).error == ""
    await node.kill_agent()
    for claim in claims:
        assert await driver.unprepare(other.name, claim) == ""
    assert not list(node.cdi.iterdir())
    # The agent that comes back knows no claim that was unprepared meanwhile.
    node.start_agent()
    again = await allocate_claim(node, "again")
    await node.is_ready()
    assert (await driver.prepare(node.name, again)).error == ""
    assert [path.name for path in node.cdi.iterdir()] == [again.file.name]


async def test_the_ledger_of_another_gpu_does_not_count(node: Node, other: Node):
    driver = await start_both(node, other)
    claim = await allocate_claim(node, "serve", result={"pool": other.name})
    error = (await driver.prepare(node.name, claim)).error
    assert f"the ledger of GPUServer {other.name} does not contain it" in error
