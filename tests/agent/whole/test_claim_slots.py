"""Claims on a GPU whose slots have limits or SMs of their own, beside the whole agent."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from agent.claims import Claim, Driver, allocate_claim
from agent.node import Node, ended, serve
from agent.whole.conftest import RESTRICTED, SLOTS, open_slots_are, serve_v3
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.mps_health import MPSHealth
from partita.agent.mps.namespaces import slot_namespace
from support.api import condition
from support.polling import until

HIGHEST = SLOTS - 1
"""The slot of the first claim."""


async def prepared(node: Node, driver: Driver, name: str, memory: int = 1000) -> Claim:
    claim = await allocate_claim(node, name, memory, container=RESTRICTED)
    assert (await driver.prepare(node.name, claim)).error == ""
    return claim


async def becomes_prepared(node: Node, driver: Driver, claim: Claim) -> None:
    async def is_prepared() -> bool:
        return (await driver.prepare(node.name, claim)).error == ""

    await until(is_prepared)


async def test_the_limits_of_a_claim_hold_without_its_variables_and_follow_its_allocation(
    node: Node, driver: Driver
):
    await serve_v3(node)
    body = await node.body()
    assert body["status"]["protocol"] == 3
    assert condition(body, "MPSProtocol3") == ("True", "InUse")
    claim = await prepared(node, driver, "serve", memory=1000)
    await open_slots_are(node, HIGHEST)
    (mount,) = claim.edits["mounts"]
    assert mount["hostPath"].endswith(slot_namespace(HIGHEST))
    raised = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40960M"}
    assert (await ended(claim.run("alloc:1000", **raised)))[0] == 0
    assert "out of memory" in (await ended(claim.run("alloc:1001", **raised)))[1]
    await claim.set_entry(memory="2000Mi")
    await until(lambda: claim.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2000M")

    async def fits() -> bool:
        return (await ended(claim.run("alloc:2000", **raised)))[0] == 0

    await until(fits)
    assert await driver.unprepare(node.name, claim) == ""
    await open_slots_are(node)


async def test_a_claim_waits_until_a_slot_is_free(node: Node, driver: Driver):
    node.times = replace(node.times, prepare_within=0.5)
    await serve_v3(node)
    claims = [await prepared(node, driver, f"claim-{number}") for number in range(HIGHEST + 1)]
    late = await allocate_claim(node, "late", container=RESTRICTED)
    assert "all 4 slots" in (await driver.prepare(node.name, late)).error
    await driver.unprepare(node.name, claims[0])
    await becomes_prepared(node, driver, late)
    assert late.edits["mounts"][0]["hostPath"].endswith(slot_namespace(HIGHEST))


async def test_slots_are_open_again_after_a_restart_of_mps_and_of_the_agent(
    node: Node, driver: Driver
):
    await serve_v3(node)
    left = await prepared(node, driver, "left")
    claim = await prepared(node, driver, "serve", memory=1000)
    edits = claim.edits
    before = MPSReport.read(node.paths.mps_report)
    assert before is not None
    await node.kill_agent()
    await left.release()
    node.start_agent()
    await open_slots_are(node, HIGHEST - 1)
    os.kill(before.daemon, signal.SIGKILL)
    await until(lambda: MPSReport.read(node.paths.mps_report) not in (None, before))
    await open_slots_are(node, HIGHEST - 1)
    assert claim.edits == edits
    assert (await ended(claim.run("alloc:1000")))[0] == 0
    assert "out of memory" in (await ended(claim.run("alloc:1001")))[1]


async def test_the_next_claim_of_a_slot_waits_until_the_last_client_has_left(
    node: Node, driver: Driver
):
    node.times = replace(node.times, prepare_within=0.5)
    await serve_v3(node)
    first = await prepared(node, driver, "first")
    program = first.run("alloc:100", "forever")
    await until(lambda: program.pid in node.gpus.pids())
    pipes = first.edits
    await first.release()
    await until(lambda: not first.file.exists())
    second = await allocate_claim(node, "second", 2000, container=RESTRICTED, job=True)
    # The limits of the first claim hold until its client has left.
    assert "has active clients" in (await driver.prepare(node.name, second)).error
    program.kill()
    await becomes_prepared(node, driver, second)
    assert second.edits["mounts"] == pipes["mounts"]
    assert (await ended(second.run("alloc:2000")))[0] == 0


async def test_auto_takes_protocol_3_on_a_node_with_user_namespaces(node: Node):
    node.gpus.install_driver("615.71.09")
    name = f"node-{node.name}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    (await node.api.post("/api/v1/nodes", body)).ok()
    handlers = [{"name": "", "features": {"userNamespaces": True}}]
    patch = {"status": {"runtimeHandlers": handlers}}
    (await node.api.patch(f"/api/v1/nodes/{name}/status", patch)).ok()
    await node.create()
    node.start_agent(node=name)
    node.start_mps()
    assert (await node.is_ready())["status"]["protocol"] == 3


async def test_an_sm_fault_does_not_fault_a_gpu_with_static_partitions(node: Node, driver: Driver):
    node.gpus.install_driver("610.10")
    await serve(node, isolation="StaticSM")
    body = await node.is_ready()
    assert body["status"]["smPartitions"] == 4
    assert condition(body, "StaticSMPartitions") == ("True", "InUse")
    report = MPSReport.read(node.paths.mps_report)
    assert report is not None
    first, second = await prepared(node, driver, "first"), await prepared(node, driver, "second")
    found = [claim.environment["CUDA_MPS_SM_PARTITION"] for claim in (first, second)]
    assert found == [report.sm_partitions[HIGHEST], report.sm_partitions[HIGHEST - 1]]
    neighbour = second.run("alloc:100", "forever")
    await until(lambda: neighbour.pid in node.gpus.pids())
    assert "launch failure" in (await ended(first.run("alloc:100", "fault:sm")))[1]
    # The report of a later program follows that of the Xid.
    later = first.run("alloc:900", "forever")
    await node.until(lambda b: first.used(b).get("peakMemory") == "1200Mi")
    assert condition(await node.body(), "Faulted")[0] == "False"
    assert (neighbour.poll(), later.poll()) == (None, None)


async def test_a_daemon_that_starts_slowly_is_not_restarted(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    checks, check = [], MPSHealth.check

    async def counted(mps: MPSHealth, now: float) -> None:
        await check(mps, now)
        checks.append(now)

    monkeypatch.setattr(MPSHealth, "check", counted)
    node.gpus.install_driver("615.71.09")
    node.gpus.mps(initialising=1)
    await node.create("MPS", protocol=3)
    node.start_agent()
    node.start_mps()
    await until(lambda: len(checks) > 3)
    node.gpus.mps()
    assert (await node.is_ready())["status"]["mps"]["restarts"] == {}
