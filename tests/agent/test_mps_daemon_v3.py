"""`partita agent mps` with protocol 3 and with static SM partitions, and the client for them."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from unittest.mock import AsyncMock, Mock, call

import pytest

from agent.mps_container import UUID, MPSDaemonRun
from gpu.fake import MIB
from partita.agent.errors import MPSGarbledError, MPSGoneError, MPSRefusedError
from partita.agent.mps.control import ServerState
from partita.agent.mps.control_v3 import MPSControlV3, parse_rows
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.namespaces import (
    CANARY,
    NamespaceLimits,
    namespace_directory,
    slot_namespace,
)
from partita.agent.mps.slot_limits import SlotLimits, SlotOwner
from support.polling import TIMEOUT, until

SLOT = slot_namespace(0)
LIMITS = NamespaceLimits(memory=100, threads=25)
OWNER = SlotOwner(("default", "serve"), LIMITS)


async def start(mps: MPSDaemonRun, driver: str, **config: object) -> MPSReport:
    """Start a daemon as the agent asks for it; return what is reported."""
    mps.gpus.install_driver(driver)
    mps.serve(**config)
    report = await mps.report()
    mps.protocol = report.protocol
    return report


def control(mps: MPSDaemonRun) -> MPSControlV3:
    return MPSControlV3(str(mps.pipes), asyncio.Lock(), TIMEOUT)


def run(mps: MPSDaemonRun, namespace: str, *steps: str) -> subprocess.Popen[str]:
    """Start a program in a namespace."""
    return mps.run(*steps, pipes=namespace_directory(mps.pipes, namespace))


def said(program: subprocess.Popen[str]) -> str:
    """What a program says until its end."""
    return program.communicate(timeout=TIMEOUT)[1]


def test_lists_are_read_strictly():
    assert parse_rows("\n", 3) == []
    assert parse_rows("a,b,c\nd,e,f,g\n", 3) == [["a", "b", "c"], ["d", "e", "f", "g"]]
    for noise in ("a", "a,b", "NAME  UID", "a,b,c\nnoise"):
        with pytest.raises(MPSGarbledError):
            parse_rows(noise, 3)


async def test_an_older_driver_gets_protocol_2_and_the_report_says_so(mps: MPSDaemonRun):
    report = await start(mps, "610.10", protocol=3)
    assert (report.protocol, report.daemon) == (2, mps.pid())
    assert report.no_protocol_3
    await mps.active()


async def test_every_namespace_is_closed_at_first_but_the_canarys(mps: MPSDaemonRun):
    report = await start(mps, "615.71.09", protocol=3, slots=2)
    assert (report.protocol, report.no_protocol_3) == (3, False)
    await mps.active()
    limits = await control(mps).limits()
    assert limits.keys() == {"default", CANARY, SLOT, slot_namespace(1)}
    assert limits["default"] == limits[SLOT] == limits[slot_namespace(1)] == ("1M", "1.00")
    assert "out of memory" in said(run(mps, SLOT, "alloc:10"))
    assert "out of memory" in said(run(mps, "", "alloc:10"))
    assert run(mps, CANARY, "alloc:10").wait(TIMEOUT) == 0


async def test_a_client_is_terminated_alone_and_the_server_ends_with_the_daemon(mps: MPSDaemonRun):
    await start(mps, "615.71.09", protocol=3, slots=1)
    server, client = await mps.active(), control(mps)
    await client.limit(SLOT, LIMITS)
    victim, neighbour = (
        run(mps, SLOT, "alloc:10", "forever"),
        run(mps, CANARY, "alloc:10", "forever"),
    )

    async def connected(*programs: subprocess.Popen[str]) -> None:
        status = ServerState.ACTIVE, sorted(program.pid for program in programs)

        async def same() -> bool:
            state, pids = await client.status(server)
            return (state, sorted(pids)) == status

        await until(same)

    await connected(victim, neighbour)
    assert set(await client.attached()) == {(victim.pid, SLOT), (neighbour.pid, CANARY)}
    assert await client.terminate(server, victim.pid) == ""
    assert "terminated by the server" in said(victim)
    await connected(neighbour)
    assert "not found" in await client.terminate(server, 4194305)
    with pytest.raises(MPSRefusedError):
        await client.state(server + 1)
    mps.stop.set()
    assert mps.task is not None
    await asyncio.wait_for(mps.task, TIMEOUT)
    with pytest.raises(MPSGoneError):
        await client.servers()


async def test_an_unknown_status_is_not_healthy(mps: MPSDaemonRun):
    await start(mps, "615.71.09", protocol=3, slots=1)
    server, client = await mps.active(), control(mps)
    mps.gpus.mps(initialising=1)
    assert await client.state(server) is ServerState.INITIALIZING
    mps.gpus.mps(garbage=1)
    with pytest.raises(MPSGarbledError):
        await client.servers()


async def test_a_restart_closes_all_namespaces_and_keeps_their_directories(mps: MPSDaemonRun):
    await start(mps, "615.71.09", protocol=3, slots=1)
    server = await mps.active()
    await control(mps).limit(SLOT, LIMITS)
    directory = namespace_directory(mps.pipes, SLOT)
    inode = directory.stat().st_ino
    mps.configure(protocol=3, slots=1, restarts=1)
    await mps.active(not_server=server)
    limits = await control(mps).limits()
    assert limits[SLOT] == limits["default"]
    # A container has mounted it, not its name.
    assert directory.stat().st_ino == inode


def slot_limits(daemon: Mock, owners: Mock) -> SlotLimits:
    ledger = Mock(allocations={OWNER.key})
    return SlotLimits(ledger=ledger, control=lambda: daemon, count=1, owners=owners)


async def test_a_slot_that_a_starting_daemon_does_not_list_yet_is_opened_later():
    lists = [{"default": ("1M", "1")}, dict.fromkeys(("default", SLOT), ("1M", "1"))]
    daemon = Mock(MPSControlV3, limits=AsyncMock(side_effect=lists), limit=AsyncMock())
    daemon.attached = AsyncMock(return_value=[])
    slots = slot_limits(daemon, Mock(return_value={0: OWNER}))
    await slots.reconcile(1, set())
    await slots.reconcile(1, set())
    daemon.limit.assert_awaited_once_with(SLOT, LIMITS)


async def test_a_limit_that_waits_for_a_client_is_set_after_a_restart_of_the_agent():
    listed = {"default": ("1M", "1"), SLOT: ("50M", "25")}
    clients = AsyncMock(side_effect=[[(7, SLOT), (8, "canary")], [], []])
    daemon = Mock(MPSControlV3, limits=AsyncMock(return_value=listed), attached=clients)
    daemon.limit = AsyncMock(side_effect=[MPSRefusedError("has active clients"), None])
    slots = slot_limits(daemon, Mock(return_value={0: OWNER}))
    for _ in range(3):
        await slots.reconcile(1, {7, 8})
    assert daemon.mock_calls == [call.limits(), call.attached()]
    for _ in range(4):  # another client connects just before the first command
        await slots.reconcile(1, {8})
    assert daemon.limit.await_args_list == [call(SLOT, LIMITS)] * 2


async def test_a_slot_is_open_for_a_claim_that_gets_it_while_a_check_closes_it():
    listed = asyncio.Event()

    async def limits() -> dict[str, tuple[str, str]]:
        await listed.wait()
        return {"default": ("1M", "1"), SLOT: ("100M", "25")}

    daemon = Mock(
        MPSControlV3, limits=limits, limit=AsyncMock(), attached=AsyncMock(return_value=[])
    )
    owners = Mock(return_value={0: OWNER})
    slots = slot_limits(daemon, owners)
    listed.set()
    await slots.reconcile(1, set())
    listed.clear()
    owners.return_value = {}
    work = [asyncio.create_task(slots.reconcile(1, set())), asyncio.create_task(slots.open(0))]
    await asyncio.sleep(0)
    owners.return_value = {0: OWNER}
    listed.set()
    await asyncio.gather(*work)
    daemon.limit.assert_awaited_with(SLOT, LIMITS)


@pytest.mark.parametrize(("driver", "protocol"), [("610.10", 2), ("615.71.09", 3)])
async def test_each_slot_has_its_share_of_the_sms(mps: MPSDaemonRun, driver: str, protocol: int):
    report = await start(mps, driver, protocol=protocol, slots=4, static_sm=True)
    assert (report.protocol, len(set(report.sm_partitions))) == (protocol, 4)
    assert report.no_sm_partitions == ""
    await mps.active()
    pipes = mps.pipes
    if protocol == 3:
        pipes = namespace_directory(mps.pipes, SLOT)
        await control(mps).limit(SLOT, LIMITS)
    inside = {"CUDA_MPS_SM_PARTITION": report.sm_partitions[0]}
    program = mps.run("compute:60000:90", pipes=pipes, **inside)
    processes = mps.gpus.folder / "gpu-0.processes"
    # 27 chunks of 4 SMs on an A100: 6 of them, of 108 SMs.
    await until(lambda: f"{program.pid} 0 22 M" in processes.read_text())
    outside = mps.run("alloc:1", pipes=pipes)
    assert "invalid resource configuration" in outside.communicate(timeout=TIMEOUT)[1]


async def test_too_many_slots_for_the_sms_are_reported_with_a_remedy(mps: MPSDaemonRun):
    mps.gpus.add(0, sms=40, memory=40960 * MIB)
    report = await start(mps, "610.10", slots=11, static_sm=True)
    assert report.daemon == 0
    assert "set sharing.maxJobsPerGPU to 10 or less" in report.no_sm_partitions


async def test_a_gpu_without_partitions_is_reported(mps: MPSDaemonRun):
    mps.gpus.add(0, capability_major=7)
    report = await start(mps, "615.71.09", protocol=3, slots=2, static_sm=True)
    assert "not supported" in report.no_sm_partitions


def test_the_longest_path_of_a_socket_is_short_enough_for_the_kernel():
    pipes = Path("/run/partita") / UUID / "pipe"
    # 107 bytes: unix(7).
    assert len(str(namespace_directory(pipes, slot_namespace(127)) / "control")) <= 107
