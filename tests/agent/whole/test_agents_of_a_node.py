"""Several GPUs on one node: kubelet asks any agent, and that of the claim's GPU prepares it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.claims import Claim, Driver, allocate_claim
from agent.node import Node, serve
from gpu.fake import MIB, FakeGPUs
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
    await made.close()


async def start_both(node: Node, other: Node, mode: str = "MPS") -> Driver:
    await serve(node, mode)
    await other.create_server(mode)
    node.kubelet.gives(other.name, other.uuid, namespace=other.namespace)
    other.start_agent()
    if mode == "MPS":
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
    elsewhere = await allocate_claim(node, "elsewhere", result={"pool": other.name})
    error = (await driver.prepare(node.name, elsewhere)).error
    assert f"the ledger of GPUServer {other.name} does not contain it" in error


async def test_a_claim_of_two_gpus_is_prepared_by_both_agents(node: Node, other: Node):
    node.times = other.times = replace(node.times, prepare_within=0.5)
    driver = await start_both(node, other, "Exclusive")
    claim = await allocate_claim(node, "train", beside=[other])
    error = (await driver.prepare(node.name, claim)).error
    assert f"the ledger of GPUServer {other.name} does not contain it" in error
    there = Claim(other, claim.name, claim.uid, claim.pod)
    entry = (await node.body())["status"]["allocations"][claim.uid]
    await there.set_entry(**entry | {"storesUsage": False})
    prepared = await driver.prepare(other.name, claim)
    assert prepared.error == ""
    assert [device.pool_name for device in prepared.devices] == [node.name, other.name]
    names = [name for device in prepared.devices for name in device.cdi_device_ids]
    assert names == [f"partita.dev/slice={claim.uid}-{one.name}" for one in (node, other)]
    for part in (claim, there):
        assert part.environment["NVIDIA_VISIBLE_DEVICES"] == f"{node.uuid},{other.uuid}"
    assert await driver.unprepare(node.name, claim) == ""
    assert not list(node.cdi.glob("*"))


async def test_a_claim_whose_agent_is_gone_is_refused_and_unprepared(node: Node, other: Node):
    node.times = replace(node.times, prepare_within=0.5)
    driver = await start_both(node, other)
    claim = await allocate_claim(other, "serve")
    assert (await driver.prepare(other.name, claim)).error == ""
    await other.kill_agent()
    error = (await driver.prepare(node.name, claim)).error
    assert f"GPUServer {other.name}, whose agent does not run on this node" in error
    assert claim.file.exists()
    assert await driver.unprepare(node.name, claim) == ""
    assert not claim.file.exists()
