"""The MPS control daemon's client, against the fake daemon, and what that one does itself."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from agent.mps_container import MPSDaemonRun
from gpu.fake import FakeGPUs
from partita.agent.errors import MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.agent.mps.control import MPSControl, ServerState, max_clients, parse_pids, parse_state
from support.polling import TIMEOUT, until


@pytest.fixture
async def daemon(mps: MPSDaemonRun) -> MPSDaemonRun:
    """A daemon that runs, and that nobody but the test asks."""
    mps.serve()
    await mps.report()
    return mps


def ended(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Code and last words of a program."""
    _, said = program.communicate(timeout=TIMEOUT)
    return program.returncode, said


@pytest.mark.parametrize(("cuda", "limit"), [(13010, 60), (13000, 48), (None, 48)])
def test_the_limit_of_clients_depends_on_the_driver(cuda: int | None, limit: int):
    assert max_clients(cuda) == limit


def test_lists_of_pids_are_read_strictly():
    assert parse_pids("\n") == []
    assert parse_pids("12\n 13\n") == [12, 13]
    for noise in ("12 x", "-1", "0", "1.5", "server 12", "²"):
        with pytest.raises(MPSGarbledError):
            parse_pids(noise)


def test_states_are_read_strictly():
    assert parse_state("ACTIVE\n") is ServerState.ACTIVE
    for noise in ("", "active", "ACTIVE FAULT", "RUNNING", "Server 12 not found"):
        with pytest.raises(MPSGarbledError):
            parse_state(noise)


async def test_a_server_is_listed_and_ends_with_its_daemon(daemon: MPSDaemonRun):
    (server,) = await daemon.control.servers()
    assert await daemon.control.state(server) is ServerState.ACTIVE
    assert await daemon.control.status(server) == (ServerState.ACTIVE, [])
    daemon.lock.release()  # no other one is started
    await daemon.control.quit()
    await daemon.logged("waiting for the agent")
    with pytest.raises(MPSGoneError):
        await daemon.control.servers()


async def test_of_a_server_whose_state_is_not_told_it_is_read_whether_it_is_ready(
    daemon: MPSDaemonRun,
):
    daemon.gpus.install_driver("535.261.03")
    (server,) = await daemon.control.servers()
    assert await daemon.control.state(server) is ServerState.ACTIVE
    daemon.gpus.mps(initialising=1)
    assert await daemon.control.status(server) == (ServerState.INITIALIZING, [])


async def test_a_client_is_listed_while_it_lives_and_terminated_alone(daemon: MPSDaemonRun):
    (server,) = await daemon.control.servers()
    victim, neighbour = daemon.run("alloc:10", "forever"), daemon.run("alloc:10", "forever")

    async def connected(*programs: subprocess.Popen[str]) -> None:
        async def same() -> bool:
            return set(await daemon.control.clients(server)) == {p.pid for p in programs}

        await until(same)

    await connected(victim, neighbour)
    assert await daemon.control.terminate(server, victim.pid) == ""
    code, said = ended(victim)
    assert (code, "terminated by the server" in said) == (1, True)
    await connected(neighbour)
    assert await daemon.control.state(server) is ServerState.ACTIVE
    assert await daemon.control.terminate(server, 4194305) == "Invalid process 4194305!"
    assert "not found" in await daemon.control.terminate(server + 1, 4194305)


async def test_no_answer_is_an_error_within_the_deadline(daemon: MPSDaemonRun):
    daemon.gpus.mps(hang=1)
    control = MPSControl(str(daemon.pipes), asyncio.Lock(), deadline=0.2)
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(MPSUnansweredError):
            await control.servers()
    daemon.gpus.mps()


@pytest.fixture
def rejections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the daemon rejects."""
    found: list[str] = []
    run = MPSControl._run

    async def recorded(control: MPSControl, text: str) -> tuple[int, str, str]:
        code, out, error = await run(control, text)
        if "Cannot send command" in error:
            found.append(text)
        return code, out, error

    monkeypatch.setattr(MPSControl, "_run", recorded)
    return found


async def test_a_command_that_a_busy_daemon_rejects_is_repeated(
    daemon: MPSDaemonRun, rejections: list[str]
):
    control = MPSControl(str(daemon.pipes), asyncio.Lock(), deadline=30)

    def hold() -> subprocess.Popen[str]:
        """Start a client that holds the daemon's only connection: it waits for its input."""
        variables = {"CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipes)}
        return daemon.gpus.start("nvidia-cuda-mps-control", **variables)

    hung = hold()
    try:

        async def is_busy() -> bool:
            nonlocal hung
            await control._run("get_server_list")
            if not rejections:  # perhaps it was rejected itself, for a command of this test
                hung.kill()
                hung = hold()
            return bool(rejections)

        await until(is_busy)
        rejections.clear()
        waiting = asyncio.create_task(control.servers())
        await until(lambda: rejections)
        hung.kill()
        assert len(await waiting) == 1
    finally:
        hung.kill()


async def test_commands_of_one_client_do_not_reject_each_other(
    daemon: MPSDaemonRun, rejections: list[str]
):
    control = daemon.control
    await asyncio.gather(*(control.servers() for _ in range(5)))
    assert rejections == []


async def test_garbage_is_no_answer(daemon: MPSDaemonRun):
    (server,) = await daemon.control.servers()
    daemon.gpus.mps(garbage=1)
    for question in (daemon.control.servers(), daemon.control.state(server)):
        with pytest.raises(MPSGarbledError):
            await question
    assert await daemon.control.terminate(server, 1) != ""


async def test_without_the_program_there_is_no_daemon(
    fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(fake_gpus.folder))
    with pytest.raises(MPSGoneError, match="compute"):
        await MPSControl(str(fake_gpus.folder), asyncio.Lock()).servers()
