"""An agent with MPS protocol 3 and with static SM partitions, and the claims of jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import pytest

from agent.claims import Claim, Driver, allocate_claim
from agent.node import Node, condition, ended, serve
from agent.whole.conftest import new_driver
from partita.agent.errors import MPSError
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import slot_namespace
from partita.agent.mps.report import MPSReport
from support.polling import until

RESTRICTED = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
FIRST, SECOND = 3, 2
"""The slots of the first two claims."""
RAISED = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40960M"}
"""What a program sets that removes its own limit."""


async def allocated(node: Node, name: str, memory: int = 1000, **security: Any) -> Claim:
    """Allocate the claim of a job's attempt."""
    container = {"securityContext": {**RESTRICTED, **security}}
    return await allocate_claim(node, name, memory, threads=25, container=container, job=True)


async def start(claim: Claim) -> str:
    """Play kubelet: the containers are about to start; return why they must not."""
    answer = await Driver(claim.node.kubelet.folder).prepare(claim.node.name, claim)
    return str(answer.error)


async def started(node: Node, name: str, memory: int = 1000) -> Claim:
    claim = await allocated(node, name, memory)
    assert await start(claim) == ""
    return claim


def control(node: Node) -> MPSControlV3:
    return MPSControlV3(str(node.pipes), asyncio.Lock())


async def closed(node: Node, number: int) -> bool:
    limits = await control(node).limits()
    return limits[slot_namespace(number)] == limits["default"]


async def test_the_limits_of_a_job_hold_without_its_variables(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    body = await node.is_ready()
    assert body["status"]["protocol"] == 3
    assert body["status"]["capabilities"]["mpsProtocols"] == [2, 3]
    assert condition(body, "MPSProtocol3") == ("True", "InUse")
    first = await started(node, "first", memory=1000)
    assert (await ended(first.run("alloc:1000", **RAISED)))[0] == 0
    assert "out of memory" in (await ended(first.run("alloc:1001", **RAISED)))[1]
    assert await closed(node, SECOND)


async def test_a_slot_is_closed_when_its_job_has_left(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await started(node, "first")
    assert not await closed(node, FIRST)
    program = first.run("alloc:100", "forever")
    await until(lambda: program.pid in node.gpus.pids())
    await first.release()
    program.kill()

    async def is_closed() -> bool:
        return await closed(node, FIRST)

    await until(is_closed)


async def test_the_next_job_of_a_slot_waits_until_the_last_client_has_left(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await started(node, "first", memory=1000)
    program = first.run("alloc:100", "forever")
    await until(lambda: program.pid in node.gpus.pids())
    pipes = first.edits
    await first.release()
    await until(lambda: not first.file.exists())
    second = await allocated(node, "second", memory=2000)
    starting = asyncio.create_task(start(second))
    # The limits of the first job hold until its client has left.
    assert not starting.done()
    program.kill()
    assert await starting == ""
    assert second.edits["mounts"] == pipes["mounts"]
    assert (await ended(second.run("alloc:2000")))[0] == 0


async def test_a_container_without_an_allocation_is_not_started(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await allocated(node, "first")
    await first.release()
    assert "does not contain it" in await start(first)
    assert await closed(node, FIRST)


@pytest.mark.parametrize(
    "security", [{"runAsUser": 0}, {"runAsNonRoot": None}, {"allowPrivilegeEscalation": True}]
)
async def test_a_container_that_may_be_root_is_not_started(node: Node, security: dict[str, Any]):
    new_driver(node)
    await serve(node, protocol=3)
    first = await allocated(node, "first", **security)
    assert "main may run as root" in await start(first)
    assert await closed(node, FIRST)


async def test_limits_are_set_again_after_a_restart_of_mps(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await started(node, "first", memory=1000)
    before = MPSReport.read(node.paths.mps_report)
    assert before is not None
    os.kill(before.daemon, signal.SIGKILL)

    async def is_open_again() -> bool:
        now = MPSReport.read(node.paths.mps_report)
        with suppress(MPSError):
            return now not in (None, before) and not await closed(node, FIRST)
        return False

    await until(is_open_again)
    assert (await ended(first.run("alloc:1000")))[0] == 0


async def test_an_agent_that_was_restarted_closes_what_has_no_job(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    await started(node, "first")
    second = await started(node, "second")
    await node.kill_agent()
    await second.release()
    node.start_agent()

    async def is_closed() -> bool:
        return await closed(node, SECOND)

    await until(is_closed)
    assert not await closed(node, FIRST)


async def test_auto_keeps_protocol_2_on_a_node_without_user_namespaces(node: Node):
    new_driver(node)
    await serve(node)
    body = await node.is_ready()
    assert body["status"]["protocol"] == 2
    assert condition(body, "MPSProtocol3") == ("False", "NoUserNamespaces")


async def test_auto_takes_protocol_3_on_a_node_with_user_namespaces(node: Node):
    new_driver(node)
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


async def test_a_partition_that_requires_protocol_3_gets_no_gpu_with_an_old_driver(node: Node):
    await node.create(protocol=3)
    node.start_agent()
    node.start_mps()
    body = await node.says("MPSProtocol3NotSupported")
    (ready,) = [c for c in body["status"]["conditions"] if c["type"] == "Ready"]
    assert "install driver r615 or later" in ready["message"]
    assert body["status"]["capabilities"]["mpsProtocols"] == [2]
    assert condition(body, "MPSProtocol3") == ("False", "NotSupported")


async def test_static_sms_need_a_newer_driver(node: Node):
    await node.create(isolation="StaticSM")
    node.start_agent()
    node.start_mps()
    body = await node.says("StaticSMNotSupported")
    assert condition(body, "StaticSMPartitions") == ("False", "NotSupported")


async def test_an_sm_fault_does_not_fault_a_gpu_with_static_partitions(node: Node):
    node.gpus.install_driver("610.10")
    await serve(node, isolation="StaticSM")
    body = await node.is_ready()
    assert body["status"]["smPartitions"] == 4
    assert condition(body, "StaticSMPartitions") == ("True", "InUse")
    report = MPSReport.read(node.paths.mps_report)
    assert report is not None
    first, second = await started(node, "first"), await started(node, "second")
    found = [claim.environment["CUDA_MPS_SM_PARTITION"] for claim in (first, second)]
    assert found == [report.sm_partitions[FIRST], report.sm_partitions[SECOND]]
    neighbour = second.run("alloc:100", "forever")
    await until(lambda: neighbour.pid in node.gpus.pids())
    assert "launch failure" in (await ended(first.run("alloc:100", "fault:sm")))[1]
    # The report of a later program follows that of the Xid.
    later = second.run("alloc:200", "forever")
    await node.until(lambda b: second.used(b).get("peakMemory") == "900Mi")
    assert condition(await node.body(), "Faulted")[0] == "False"
    assert (neighbour.poll(), later.poll()) == (None, None)
    # A fault of another kind ends all clients.
    await ended(first.run("alloc:100", "fault"))
    await node.says("MPSFault", kind="Faulted", status="True")
    assert (await ended(neighbour))[0] == 1


async def test_a_server_that_vanishes_is_a_fault_and_is_replaced(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await started(node, "first")
    program = first.run("alloc:100", "forever")
    await node.until(lambda b: b["status"]["mps"]["clients"] == 1)
    (server,) = await control(node).servers()
    os.kill(server, signal.SIGKILL)
    await node.says("MPSServerLost", kind="Faulted", status="True")
    assert (await ended(program))[0] == 1
    await first.release()
    await node.is_ready()
    assert await control(node).servers() not in ([], [server])
