"""The MPS control daemon's client, against the fake daemon, and what that one does itself."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from gpu.fake import FakeGPUs, uuid_of
from partita.agent.errors import MPSError, MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.agent.mps import control as mps_control
from partita.agent.mps.control import MPSControl, ServerState, parse_pids, parse_state
from support.polling import poll, until

GPU = uuid_of(0)


class FakeDaemon:
    """A control daemon and its programs."""

    def __init__(self, gpus: FakeGPUs) -> None:
        self.gpus = gpus
        self.pipes = gpus.folder / "pipe"
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(gpus.folder / "log"),
            "CUDA_VISIBLE_DEVICES": GPU,
        }
        self.control = MPSControl(str(self.pipes), asyncio.Lock())
        self.daemon: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        self.daemon = self.gpus.start(self.gpus.built.control, "-f", *options, **self.environment)
        poll((self.pipes / "clients").exists)

    def run(self, *steps: str, **more: str) -> subprocess.Popen[str]:
        """Start a program of this daemon's."""
        return self.gpus.run(*steps, **(self.environment | more))

    async def server(self) -> int:
        """Start a server and return its PID."""
        await self.control.start_server(0)
        (pid,) = await self.control.servers()
        return pid


@pytest.fixture
async def daemon(fake_gpus: FakeGPUs) -> FakeDaemon:
    fake_gpus.start_driver()
    made = FakeDaemon(fake_gpus)
    made.start("-multiuser-server")
    return made


def ended(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Code and last words of a program."""
    _, said = program.communicate(timeout=10)
    return program.returncode, said


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


async def test_a_server_is_started_listed_and_stopped(daemon: FakeDaemon):
    assert await daemon.control.servers() == []
    server = await daemon.server()
    assert await daemon.control.state(server) is ServerState.ACTIVE
    assert await daemon.control.status(server) == (ServerState.ACTIVE, [])
    await daemon.control.quit()
    assert daemon.daemon is not None
    assert daemon.daemon.wait(10) == 0
    with pytest.raises(MPSGoneError):
        await daemon.control.servers()


async def test_clients_are_listed_while_they_live(daemon: FakeDaemon):
    server = await daemon.server()
    program = daemon.run("alloc:10", "forever")

    async def connected() -> bool:
        return await daemon.control.clients(server) == [program.pid]

    await until(connected)
    program.kill()

    async def gone() -> bool:
        return await daemon.control.clients(server) == []

    await until(gone)


async def test_a_client_is_terminated_alone(daemon: FakeDaemon):
    server = await daemon.server()
    victim, neighbour = daemon.run("alloc:10", "forever"), daemon.run("alloc:10", "forever")

    async def connected() -> bool:
        return len(await daemon.control.clients(server)) == 2

    await until(connected)
    assert await daemon.control.terminate(server, victim.pid) == ""
    code, said = ended(victim)
    assert (code, "terminated by the server" in said) == (1, True)
    assert neighbour.poll() is None
    assert await daemon.control.state(server) is ServerState.ACTIVE


async def test_what_is_no_client_is_not_terminated_and_it_is_said_why(daemon: FakeDaemon):
    server = await daemon.server()
    assert await daemon.control.terminate(server, 4194305) == "Invalid process 4194305!"
    assert "not found" in await daemon.control.terminate(server + 1, 4194305)


async def test_no_answer_is_an_error_within_the_deadline(daemon: FakeDaemon):
    await daemon.server()
    daemon.gpus.mps(hang=1)
    control = MPSControl(str(daemon.pipes), asyncio.Lock(), deadline=0.2)
    async with asyncio.timeout(60):
        with pytest.raises(MPSUnansweredError):
            await control.servers()


async def test_a_command_that_a_busy_daemon_rejects_is_repeated(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
):
    rejections: list[str] = []
    run = MPSControl._run

    async def recorded(control: MPSControl, text: str) -> tuple[int, str, str]:
        code, out, error = await run(control, text)
        if "Cannot send command" in error:
            rejections.append(text)
        return code, out, error

    monkeypatch.setattr(MPSControl, "_run", recorded)
    control = MPSControl(str(daemon.pipes), asyncio.Lock(), deadline=30)

    def hold() -> subprocess.Popen[str]:
        """Start a client that holds the daemon's only connection: it waits for its input."""
        return daemon.gpus.start(daemon.gpus.built.control, **daemon.environment)

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
        assert await waiting == []
    finally:
        hung.kill()


async def test_commands_of_one_client_do_not_reject_each_other(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mps_control, "_RETRY", 1000.0)
    await asyncio.gather(*(daemon.control.servers() for _ in range(5)))


async def test_garbage_is_no_answer(daemon: FakeDaemon):
    server = await daemon.server()
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


async def test_a_limit_refuses_what_is_above_it_and_only_there(daemon: FakeDaemon):
    await daemon.server()
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=100M"}
    small, large = daemon.run("alloc:100", **limit), daemon.run("alloc:60", "alloc:60", **limit)
    assert ended(small)[0] == 0
    code, said = ended(large)
    assert (code, "out of memory" in said) == (1, True)


async def test_a_program_that_handles_the_refusal_goes_on(daemon: FakeDaemon):
    program = daemon.run("try:200", "alloc:50", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=100M")
    assert ended(program)[0] == 0


async def test_a_limit_of_a_gpu_that_is_not_visible_drops_every_limit(daemon: FakeDaemon):
    both = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0=100M,{GPU}=100M"}
    assert ended(daemon.run("alloc:2000", **both))[0] == 0


async def test_a_client_cannot_raise_the_daemons_limit(daemon: FakeDaemon):
    await daemon.control.limit_memory(0, 100)
    await daemon.server()
    program = daemon.run("alloc:150", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=200M")
    assert ended(program)[0] == 1


async def test_a_default_set_later_is_for_the_next_server(daemon: FakeDaemon):
    server = await daemon.server()
    await daemon.control.limit_memory(0, 100)
    assert ended(daemon.run("alloc:150"))[0] == 0
    await daemon.control.command(f"shutdown_server {server}")
    assert ended(daemon.run("alloc:150"))[0] == 1


async def test_limits_are_lost_on_quit(daemon: FakeDaemon):
    await daemon.control.limit_memory(0, 100)
    await daemon.control.limit_threads(50)
    await daemon.control.quit()
    assert daemon.daemon is not None
    daemon.daemon.wait(10)
    daemon.start("-multiuser-server")
    assert ended(daemon.run("alloc:150"))[0] == 0
    assert "100" in await daemon.control.command("get_default_active_thread_percentage")


async def test_a_fault_takes_all_clients_and_lasts_until_they_have_left(daemon: FakeDaemon):
    server = await daemon.server()
    # One that ignores the error stays, as a stopped process does.
    neighbour = daemon.run("alloc:10", "forever")

    async def connected() -> bool:
        return await daemon.control.clients(server) == [neighbour.pid]

    await until(connected)
    neighbour.send_signal(19)
    assert ended(daemon.run("alloc:10", "fault"))[0] == 1
    assert await daemon.control.state(server) is ServerState.FAULT
    late = daemon.run("alloc:1")
    assert "not ready" in ended(late)[1]
    neighbour.send_signal(18)
    code, said = ended(neighbour)
    assert (code, "launch failure" in said) == (1, True)

    async def active() -> bool:
        return await daemon.control.state(server) is ServerState.ACTIVE

    await until(active)
    assert ended(daemon.run("alloc:1"))[0] == 0


async def test_clients_are_bounded_and_the_error_says_so(daemon: FakeDaemon):
    await daemon.server()
    daemon.gpus.mps(max_clients=1)
    first = daemon.run("alloc:1", "forever")
    poll(lambda: daemon.gpus.pids().keys() == {first.pid})
    assert "exhausted" in ended(daemon.run("alloc:1"))[1]


async def test_in_exclusive_mode_a_program_with_a_wrong_pipe_fails_loudly(daemon: FakeDaemon):
    await daemon.server()
    (daemon.gpus.folder / "gpu-0.mode").write_text("3")
    lost = daemon.run("alloc:1", CUDA_MPS_PIPE_DIRECTORY="/nowhere")
    code, said = ended(lost)
    assert (code, "busy or unavailable" in said) == (1, True)
    assert ended(daemon.run("alloc:1"))[0] == 0


async def test_a_second_daemon_in_one_directory_ends(daemon: FakeDaemon):
    second = daemon.gpus.start(daemon.gpus.built.control, "-f", **daemon.environment)
    assert "already running" in ended(second)[1]


async def test_all_of_these_are_errors_of_the_agent():
    assert issubclass(MPSGoneError, MPSError)
