"""`partita agent mps`: the control daemon's whole life, its bad days included."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from gpu.fake import FakeGPUs, uuid_of
from partita.agent import mps_daemon as daemon_module
from partita.agent.errors import MPSError, SetupError
from partita.agent.mps_control import ControlDaemon, ServerState
from partita.agent.mps_daemon import Wrapper, clear_directory
from partita.agent.paths import Handover, Lock, Paths

UUID = uuid_of(0)


class World:
    """A wrapper, and the agent's side of it."""

    def __init__(self, gpus: FakeGPUs) -> None:
        self.gpus = gpus
        self.paths = Paths("gpus-0", gpus.folder / "run")
        self.lock = Lock(self.paths.agent_lock)
        self.stop = asyncio.Event()
        self.wrapper = Wrapper(self.paths, self.stop)
        self.task: asyncio.Task[None] | None = None
        self.pipes = self.paths.pipes(UUID)
        self.control = ControlDaemon(str(self.pipes), asyncio.Lock())

    def start(self) -> None:
        self.task = asyncio.create_task(self.wrapper.run())

    def hand_over(self, *, restarts: int = 0, memory: int = 40960, agent: int = 0) -> None:
        """Say what the agent says."""
        handover = Handover(UUID, memory, agent or os.getpid(), restarts)
        handover.write(self.paths.handover)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)

    async def active(self, not_server: int = 0) -> int:
        """Wait for an ACTIVE server, which is not this one; return its PID."""
        async with asyncio.timeout(20):
            while True:
                try:
                    for server in await self.control.servers():
                        state = await self.control.state(server)
                        if server != not_server and state is ServerState.ACTIVE:
                            return server
                except MPSError:
                    pass
                await asyncio.sleep(0.02)

    def pid(self) -> int:
        """PID of the control daemon."""
        return int(self._pid_file.read_text())

    def has_pid(self) -> bool:
        """Whether a control daemon has said which process it is."""
        return self._pid_file.exists() and self._pid_file.read_text() != ""

    @property
    def _pid_file(self) -> Path:
        return self.pipes / "nvidia-cuda-mps-control.pid"

    def run(self, *steps: str):
        return self.gpus.run(*steps, CUDA_MPS_PIPE_DIRECTORY=str(self.pipes))


@pytest.fixture
async def world(fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(daemon_module, "_POLL", 0.02)
    monkeypatch.setattr(daemon_module, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(daemon_module, "_END_DEADLINE", 1.0)
    fake_gpus.start_driver()
    made = World(fake_gpus)
    yield made
    made.stop.set()
    if made.task is not None:
        await asyncio.wait_for(made.task, 20)
    made.lock.release()


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_waits_for_a_living_agents_word(world: World):
    world.hand_over()  # left behind: nobody holds the lock
    world.start()
    await asyncio.sleep(0.1)
    assert not (world.pipes / "control").exists()
    assert world.lock.take()
    await world.active()


async def test_a_word_that_another_agent_left_is_not_believed(world: World):
    world.hand_over(agent=os.getpid() + 1)
    assert world.lock.take()
    world.start()
    await asyncio.sleep(0.1)
    assert not (world.pipes / "control").exists()
    world.hand_over()
    await world.active()


async def test_limits_are_set_before_the_first_client(world: World):
    assert world.lock.take()
    world.hand_over(memory=100)
    world.start()
    server = await world.active()
    assert "100" in await world.control.command(f"get_device_pinned_mem_limit {server} 0")
    program = world.run("alloc:150")
    assert program.wait(10) == 1


async def test_the_server_sees_this_gpu_alone(world: World):
    world.gpus.add(1)
    assert world.lock.take()
    world.hand_over()
    world.start()
    await world.active()
    assert (world.gpus.folder / "gpu-0.processes").read_text().endswith("S\n")
    assert not (world.gpus.folder / "gpu-1.processes").exists()


async def test_clients_of_several_users_share_one_server(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    program = world.run("alloc:10", "forever")
    await world.until(lambda: program.pid in world.gpus.pids())
    assert await world.control.clients(server) == [program.pid]
    log = world.paths.logs(UUID) / "control.log"
    assert f"Starting new server {server} for user 0" in log.read_text()


async def test_a_daemon_that_exits_is_replaced(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    old = world.pid()
    os.kill(old, signal.SIGKILL)
    await world.active(not_server=server)
    assert world.pid() != old
    await world.until(lambda: not alive(server))


async def test_another_daemon_is_started_when_the_agent_asks_for_it(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    world.hand_over(restarts=1)
    await world.active(not_server=server)


async def test_a_hung_daemon_is_killed_when_the_agent_asks_for_another(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    old = world.pid()
    os.kill(old, signal.SIGSTOP)
    world.hand_over(restarts=1)
    await world.until(lambda: not alive(old))
    await world.active(not_server=server)


async def test_a_daemon_that_hangs_while_it_starts_is_replaced_when_the_agent_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon_module, "ControlDaemon", partial(ControlDaemon, deadline=0.3))
    world.gpus.mps(hang=1)
    assert world.lock.take()
    world.hand_over()
    world.start()
    await world.until(world.has_pid)
    old = world.pid()
    world.hand_over(restarts=1)
    await world.until(lambda: not alive(old))
    world.gpus.mps()
    await world.active()


async def test_clients_outlive_the_agent(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    program = world.run("alloc:10", "forever")
    await world.until(lambda: program.pid in world.gpus.pids())
    world.lock.release()  # it was killed
    await asyncio.sleep(0.1)
    assert world.lock.take()  # and is back
    world.hand_over()
    await asyncio.sleep(0.1)
    assert await world.control.servers() == [server]
    assert program.poll() is None


async def test_clients_outlive_an_agent_whose_word_is_gone(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    world.lock.release()
    world.paths.handover.unlink()
    await asyncio.sleep(0.1)
    assert await world.control.servers() == [server]


async def test_it_ends_when_the_agent_gives_the_gpu_back_and_leaves_no_pipes(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    Handover("", 0, os.getpid()).write(world.paths.handover)
    await world.until(lambda: not alive(server) and not world.pipes.exists())
    await asyncio.sleep(0.1)
    assert not world.pipes.exists()  # and no other is started


async def test_stopped_it_leaves_no_process_and_no_pipes(world: World):
    assert world.lock.take()
    world.hand_over()
    world.start()
    server = await world.active()
    control = world.pid()
    world.stop.set()
    assert world.task is not None
    await asyncio.wait_for(world.task, 20)
    assert not alive(server)
    assert not alive(control)
    assert not world.pipes.exists()


async def test_a_stale_pipe_directory_is_cleared_and_old_logs_are_kept(world: World):
    for directory, name in ((world.pipes, "control"), (world.paths.logs(UUID), "control.log")):
        directory.mkdir(parents=True)
        (directory / name).write_text("of an earlier daemon")
    (world.pipes / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert world.lock.take()
    world.hand_over()
    world.start()
    await world.active()  # and this process, whose PID stood in the file, lives
    old = world.paths.logs(UUID) / "control.log.old"
    assert old.read_text() == "of an earlier daemon"


async def test_a_daemon_that_an_earlier_wrapper_left_is_replaced(world: World):
    old = world.gpus.start(
        world.gpus.built.control,
        "-f",
        CUDA_MPS_PIPE_DIRECTORY=str(world.pipes),
        CUDA_MPS_LOG_DIRECTORY=str(world.paths.logs(UUID)),
        CUDA_VISIBLE_DEVICES=UUID,
    )
    await world.until((world.pipes / "clients").exists)
    old.send_signal(signal.SIGSTOP)  # it does not even answer
    assert world.lock.take()
    world.hand_over()
    world.start()
    await world.active()
    assert world.pid() != old.pid
    await world.until(lambda: old.poll() is not None)


async def test_a_daemon_without_a_server_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon_module, "_START_DEADLINE", 0.3)
    world.gpus.mps(refuse_server=1)
    assert world.lock.take()
    world.hand_over()
    world.start()
    await world.until(world.has_pid)
    first = world.pid()
    await world.until(lambda: not alive(first))
    world.gpus.mps()
    await world.active()


async def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="mounts") as raised:
        clear_directory(tmp_path / "file" / "pipe")
    assert raised.value.reason == "DirectoryNotWritable"


async def test_a_missing_program_is_told_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as missing:
        missing.setattr(daemon_module, "CONTROL", "no-such-program")
        assert world.lock.take()
        world.hand_over()
        world.start()
        await asyncio.sleep(0.1)
        assert not (world.pipes / "control").exists()
    await world.active()


def test_a_lock_goes_with_its_process(tmp_path: Path):
    first, second = Lock(tmp_path / "a" / "lock"), Lock(tmp_path / "a" / "lock")
    assert first.holder() is None
    assert first.take()
    assert first.take()
    assert not second.take()
    assert second.holder() == os.getpid()
    first.release()
    assert second.holder() is None
    assert second.take()
    second.release()


def test_a_handover_is_read_as_it_was_written_and_garbage_is_none(tmp_path: Path):
    path = tmp_path / "servers" / "gpus-0.json"
    assert Handover.read(path) is None
    handover = Handover(UUID, 4096, 7, 2)
    handover.write(path)
    assert Handover.read(path) == handover
    for noise in ("", "{", "[]", '{"uuid": "x"}', '{"uuid": "x", "no": 1}'):
        path.write_text(noise)
        assert Handover.read(path) is None
