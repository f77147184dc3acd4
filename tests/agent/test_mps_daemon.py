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


class MPSDaemonRun:
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
async def mps(fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MPSDaemonRun]:
    monkeypatch.setattr(daemon_module, "_POLL", 0.02)
    monkeypatch.setattr(daemon_module, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(daemon_module, "_END_DEADLINE", 1.0)
    fake_gpus.start_driver()
    made = MPSDaemonRun(fake_gpus)
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


async def test_it_waits_for_a_living_agents_word(mps: MPSDaemonRun):
    mps.hand_over()  # left behind: nobody holds the lock
    mps.start()
    await asyncio.sleep(0.1)
    assert not (mps.pipes / "control").exists()
    assert mps.lock.take()
    await mps.active()


async def test_a_word_that_another_agent_left_is_not_believed(mps: MPSDaemonRun):
    mps.hand_over(agent=os.getpid() + 1)
    assert mps.lock.take()
    mps.start()
    await asyncio.sleep(0.1)
    assert not (mps.pipes / "control").exists()
    mps.hand_over()
    await mps.active()


async def test_limits_are_set_before_the_first_client(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over(memory=100)
    mps.start()
    server = await mps.active()
    assert "100" in await mps.control.command(f"get_device_pinned_mem_limit {server} 0")
    program = mps.run("alloc:150")
    assert program.wait(10) == 1


async def test_the_server_sees_this_gpu_alone(mps: MPSDaemonRun):
    mps.gpus.add(1)
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    await mps.active()
    assert (mps.gpus.folder / "gpu-0.processes").read_text().endswith("S\n")
    assert not (mps.gpus.folder / "gpu-1.processes").exists()


async def test_clients_of_several_users_share_one_server(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    program = mps.run("alloc:10", "forever")
    await mps.until(lambda: program.pid in mps.gpus.pids())
    assert await mps.control.clients(server) == [program.pid]
    log = mps.paths.logs(UUID) / "control.log"
    assert f"Starting new server {server} for user 0" in log.read_text()


async def test_a_daemon_that_exits_is_replaced(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    old = mps.pid()
    os.kill(old, signal.SIGKILL)
    await mps.active(not_server=server)
    assert mps.pid() != old
    await mps.until(lambda: not alive(server))


async def test_another_daemon_is_started_when_the_agent_asks_for_it(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    mps.hand_over(restarts=1)
    await mps.active(not_server=server)


async def test_a_hung_daemon_is_killed_when_the_agent_asks_for_another(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    old = mps.pid()
    os.kill(old, signal.SIGSTOP)
    mps.hand_over(restarts=1)
    await mps.until(lambda: not alive(old))
    await mps.active(not_server=server)


async def test_a_daemon_that_hangs_while_it_starts_is_replaced_when_the_agent_asks(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon_module, "ControlDaemon", partial(ControlDaemon, deadline=0.3))
    mps.gpus.mps(hang=1)
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    await mps.until(mps.has_pid)
    old = mps.pid()
    mps.hand_over(restarts=1)
    await mps.until(lambda: not alive(old))
    mps.gpus.mps()
    await mps.active()


async def test_clients_outlive_the_agent(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    program = mps.run("alloc:10", "forever")
    await mps.until(lambda: program.pid in mps.gpus.pids())
    mps.lock.release()  # it was killed
    await asyncio.sleep(0.1)
    assert mps.lock.take()  # and is back
    mps.hand_over()
    await asyncio.sleep(0.1)
    assert await mps.control.servers() == [server]
    assert program.poll() is None


async def test_clients_outlive_an_agent_whose_word_is_gone(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    mps.lock.release()
    mps.paths.handover.unlink()
    await asyncio.sleep(0.1)
    assert await mps.control.servers() == [server]


async def test_it_ends_when_the_agent_gives_the_gpu_back_and_leaves_no_pipes(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    Handover("", 0, os.getpid()).write(mps.paths.handover)
    await mps.until(lambda: not alive(server) and not mps.pipes.exists())
    await asyncio.sleep(0.1)
    assert not mps.pipes.exists()  # and no other is started


async def test_stopped_it_leaves_no_process_and_no_pipes(mps: MPSDaemonRun):
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    server = await mps.active()
    control = mps.pid()
    mps.stop.set()
    assert mps.task is not None
    await asyncio.wait_for(mps.task, 20)
    assert not alive(server)
    assert not alive(control)
    assert not mps.pipes.exists()


async def test_a_stale_pipe_directory_is_cleared_and_old_logs_are_kept(mps: MPSDaemonRun):
    for directory, name in ((mps.pipes, "control"), (mps.paths.logs(UUID), "control.log")):
        directory.mkdir(parents=True)
        (directory / name).write_text("of an earlier daemon")
    (mps.pipes / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    await mps.active()  # and this process, whose PID stood in the file, lives
    old = mps.paths.logs(UUID) / "control.log.old"
    assert old.read_text() == "of an earlier daemon"


async def test_a_daemon_that_an_earlier_wrapper_left_is_replaced(mps: MPSDaemonRun):
    old = mps.gpus.start(
        mps.gpus.built.control,
        "-f",
        CUDA_MPS_PIPE_DIRECTORY=str(mps.pipes),
        CUDA_MPS_LOG_DIRECTORY=str(mps.paths.logs(UUID)),
        CUDA_VISIBLE_DEVICES=UUID,
    )
    await mps.until((mps.pipes / "clients").exists)
    old.send_signal(signal.SIGSTOP)  # it does not even answer
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    await mps.active()
    assert mps.pid() != old.pid
    await mps.until(lambda: old.poll() is not None)


async def test_a_daemon_without_a_server_is_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon_module, "_START_DEADLINE", 0.3)
    mps.gpus.mps(refuse_server=1)
    assert mps.lock.take()
    mps.hand_over()
    mps.start()
    await mps.until(mps.has_pid)
    first = mps.pid()
    await mps.until(lambda: not alive(first))
    mps.gpus.mps()
    await mps.active()


async def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="mounts") as raised:
        clear_directory(tmp_path / "file" / "pipe")
    assert raised.value.reason == "DirectoryNotWritable"


async def test_a_missing_program_is_told_and_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as missing:
        missing.setattr(daemon_module, "CONTROL", "no-such-program")
        assert mps.lock.take()
        mps.hand_over()
        mps.start()
        await asyncio.sleep(0.1)
        assert not (mps.pipes / "control").exists()
    await mps.active()


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
