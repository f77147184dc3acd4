"""An agent with MPS protocol 3 and with static SM partitions, from kubelet's call to the limit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

import grpc
import pytest

from agent.node import Job, Node, condition, ended, serve
from agent.whole.conftest import new_driver
from partita.agent.errors import MPSError
from partita.agent.mps import slot_limits
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import namespace_directory, slot_namespace
from partita.agent.mps.report import MPSReport
from support.polling import until

RESTRICTED = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}


class Slot:
    """A container of a job with a slot of the GPU, from kubelet's point of view."""

    def __init__(self, node: Node, number: int, job: Job) -> None:
        self.node = node
        self.number = number
        self.job = job
        self.device = f"{node.uuid[4:12]}-{number}"

    def run(self, *steps: str, **more: str) -> subprocess.Popen[str]:
        """Start a program with the mount of the slot and without any limit of its own."""
        pipes = namespace_directory(self.node.pipes, slot_namespace(self.number))
        variables = {
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40960M",
        }
        return self.job.run(*steps, **(variables | more))

    async def start(self) -> None:
        """Play kubelet: the container is about to start."""
        asked = await self.node.kubelet.registered()
        await self.node.kubelet.pre_start(asked.endpoint, self.device)


async def slot(
    node: Node, number: int, name: str, memory: int = 1000, threads: int = 25, **security: Any
) -> Slot:
    """Allocate a job, create its Pod and give it a slot."""
    environment = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(threads),
    }
    env = [{"name": key, "value": value} for key, value in environment.items()]
    container = {"env": env, "securityContext": {**RESTRICTED, **security}}
    job = await node.allocate(name, memory, container=container)
    made = Slot(node, number, job)
    hold(made)
    return made


def hold(made: Slot) -> None:
    """Play kubelet: the container has the device."""
    node, pod = made.node, made.job.pod["metadata"]["name"]
    resource = f"gpu.partita.dev/{node.uuid[4:12]}"
    node.kubelet.gives(
        pod, made.device, namespace=node.namespace, container_name="main", resource=resource
    )


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
    first = await slot(node, 0, "first", memory=1000)
    assert "out of memory" in (await ended(first.run("alloc:100")))[1]  # not started yet
    await first.start()
    assert (await ended(first.run("alloc:1000")))[0] == 0
    assert "out of memory" in (await ended(first.run("alloc:1001")))[1]
    assert await closed(node, 1)


async def test_a_slot_is_closed_when_its_job_has_left(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first")
    await first.start()
    assert not await closed(node, 0)
    program = first.run("alloc:100", "forever")
    await until(lambda: program.pid in node.gpus.pids())
    await first.job.release()
    program.kill()

    async def is_closed() -> bool:
        return await closed(node, 0)

    await until(is_closed)


async def test_the_next_job_of_a_slot_waits_until_the_last_client_has_left(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first", memory=1000)
    await first.start()
    program = first.run("alloc:100", "forever")
    await until(lambda: program.pid in node.gpus.pids())
    await first.job.release()
    node.kubelet.takes_back("first-1")
    second = await slot(node, 0, "second", memory=2000)
    starting = asyncio.create_task(second.start())
    # The limits of the first job hold until its client has left.
    assert "out of memory" in (await ended(first.run("alloc:1500")))[1]
    assert not starting.done()
    program.kill()
    await starting
    assert (await ended(second.run("alloc:2000")))[0] == 0


async def test_a_container_without_an_allocation_is_not_started(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    new_driver(node)
    monkeypatch.setattr(slot_limits, "_PREPARE_WITHIN", 2.0)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first")
    await first.job.release()
    with pytest.raises(grpc.aio.AioRpcError, match="has no allocation on this GPU"):
        await first.start()
    unknown = Slot(node, 3, first.job)
    with pytest.raises(grpc.aio.AioRpcError, match="kubelet reports no container"):
        await unknown.start()
    assert await closed(node, 0)


@pytest.mark.parametrize(
    "security", [{"runAsUser": 0}, {"runAsNonRoot": None}, {"allowPrivilegeEscalation": True}]
)
async def test_a_container_that_may_be_root_is_not_started(node: Node, security: dict[str, Any]):
    new_driver(node)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first", **security)
    with pytest.raises(grpc.aio.AioRpcError, match="main may run as root"):
        await first.start()
    assert await closed(node, 0)


async def test_limits_are_set_again_after_a_restart_of_mps(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first", memory=1000)
    await first.start()
    before = MPSReport.read(node.paths.mps_report)
    assert before is not None
    os.kill(before.daemon, signal.SIGKILL)

    async def is_open_again() -> bool:
        now = MPSReport.read(node.paths.mps_report)
        with suppress(MPSError):
            return now not in (None, before) and not await closed(node, 0)
        return False

    await until(is_open_again)
    assert (await ended(first.run("alloc:1000")))[0] == 0


async def test_an_agent_that_was_restarted_closes_what_has_no_job(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first, second = await slot(node, 0, "first"), await slot(node, 1, "second")
    await first.start()
    await second.start()
    await node.kill_agent()
    await second.job.release()
    node.start_agent()

    async def is_closed() -> bool:
        return await closed(node, 1)

    await until(is_closed)
    assert not await closed(node, 0)


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
    asked = await node.kubelet.registered()
    device = f"{node.uuid[4:12]}-1"
    (container,) = (await node.kubelet.allocate(asked.endpoint, [device])).container_responses
    assert container.envs == {"CUDA_MPS_SM_PARTITION": report.sm_partitions[1]}
    first, second = await node.allocate("first", 1000), await node.allocate("second", 1000)
    inside = [{"CUDA_MPS_SM_PARTITION": p} for p in report.sm_partitions]
    neighbour = second.run("alloc:100", "forever", **inside[1])
    await until(lambda: neighbour.pid in node.gpus.pids())
    assert "launch failure" in (await ended(first.run("alloc:100", "fault:sm", **inside[0])))[1]
    # The report of a later program follows that of the Xid.
    later = second.run("alloc:200", "forever", **inside[1])
    await node.until(lambda b: second.used(b).get("peakMemory") == "900Mi")
    assert condition(await node.body(), "Faulted")[0] == "False"
    assert (neighbour.poll(), later.poll()) == (None, None)
    # A fault of another kind ends all clients.
    await ended(first.run("alloc:100", "fault", **inside[0]))
    await node.says("MPSFault", kind="Faulted", status="True")
    assert (await ended(neighbour))[0] == 1


async def test_a_server_that_vanishes_is_a_fault_and_is_replaced(node: Node):
    new_driver(node)
    await serve(node, protocol=3)
    first = await slot(node, 0, "first")
    await first.start()
    program = first.run("alloc:100", "forever")
    await node.until(lambda b: b["status"]["mps"]["clients"] == 1)
    (server,) = await control(node).servers()
    os.kill(server, signal.SIGKILL)
    await node.says("MPSServerLost", kind="Faulted", status="True")
    assert (await ended(program))[0] == 1
    await first.job.release()
    await node.is_ready()
    assert await control(node).servers() not in ([], [server])
