"""`partita agent mps`: start, restart, faults and end of the control daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from agent.mps_container import UUID, MPSDaemonRun
from partita.agent.errors import SetupError
from partita.agent.file_lock import FileLock
from partita.agent.mps import daemon as daemon_module
from partita.agent.mps import protocol as mps_protocol
from partita.agent.mps.config import MPSConfig
from partita.agent.mps.control import MPSControl
from partita.agent.mps.daemon import clear_directory
from support.polling import until


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may exit between open and read
        return False


async def test_the_configuration_of_an_agent_that_does_not_run_is_ignored(mps: MPSDaemonRun):
    mps.configure()  # nobody holds the lock
    mps.start()
    await mps.logged("waiting for the agent")
    assert not mps.pipes.exists()
    assert mps.lock.acquire()
    await mps.active()


async def test_the_configuration_of_an_earlier_agent_is_ignored(mps: MPSDaemonRun):
    mps.configure(agent=os.getpid() + 1)
    assert mps.lock.acquire()
    mps.start()
    await mps.logged("waiting for the agent")
    assert not mps.pipes.exists()
    mps.configure()
    await mps.active()


async def test_limits_are_set_before_the_first_client(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure(memory=100)
    mps.start()
    server = await mps.active()
    assert "100" in await mps.control.command(f"get_device_pinned_mem_limit {server} 0")
    program = mps.run("alloc:150")
    assert program.wait(10) == 1


async def test_the_server_sees_this_gpu_alone(mps: MPSDaemonRun):
    mps.gpus.add(1)
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    await mps.active()
    assert (mps.gpus.folder / "gpu-0.processes").read_text().endswith("S\n")
    assert not (mps.gpus.folder / "gpu-1.processes").exists()


async def test_clients_of_several_users_share_one_server(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    program = mps.run("alloc:10", "forever")
    await until(lambda: program.pid in mps.gpus.pids())
    assert await mps.control.clients(server) == [program.pid]
    log = mps.paths.logs(UUID) / "control.log"
    assert f"Starting new server {server} for user 0" in log.read_text()


async def test_a_daemon_that_exits_is_replaced(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    old = mps.pid()
    os.kill(old, signal.SIGKILL)
    await mps.active(not_server=server)
    assert mps.pid() != old
    await until(lambda: not alive(server))


async def test_another_daemon_is_started_when_the_agent_asks_for_it(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    mps.configure(restarts=1)
    await mps.active(not_server=server)


async def test_a_hung_daemon_is_killed_when_the_agent_asks_for_another(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    old = mps.pid()
    os.kill(old, signal.SIGSTOP)
    mps.configure(restarts=1)
    await until(lambda: not alive(old))
    await mps.active(not_server=server)


async def test_a_daemon_that_hangs_while_it_starts_is_replaced_when_the_agent_asks(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon_module, "MPSControl", partial(MPSControl, deadline=0.3))
    mps.gpus.mps(hang=1)
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    await until(mps.has_pid)
    old = mps.pid()
    mps.configure(restarts=1)
    await until(lambda: not alive(old))
    mps.gpus.mps()
    await mps.active()


async def test_clients_outlive_the_agent(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    program = mps.run("alloc:10", "forever")
    await until(lambda: program.pid in mps.gpus.pids())
    mps.lock.release()  # it was killed
    await mps.read_again()
    assert mps.lock.acquire()  # it runs again
    mps.configure()
    await mps.read_again()
    assert await mps.control.servers() == [server]
    assert program.poll() is None


async def test_clients_outlive_an_agent_whose_configuration_is_missing(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    mps.lock.release()
    mps.paths.mps_config.unlink()
    await mps.read_again()
    assert await mps.control.servers() == [server]


async def test_it_stops_when_the_agent_releases_the_gpu_and_leaves_no_pipes(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    MPSConfig("", 0, os.getpid()).write(mps.paths.mps_config)
    await until(lambda: not alive(server) and not mps.pipes.exists())
    await mps.logged("waiting for the agent")
    await mps.read_again()
    assert not mps.pipes.exists(), "no other daemon is started"


async def test_stopped_it_leaves_no_process_and_no_pipes(mps: MPSDaemonRun):
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    server = await mps.active()
    control = mps.pid()
    mps.stop.set()
    assert mps.task is not None
    await asyncio.wait_for(mps.task, 60)
    assert not alive(server)
    assert not alive(control)
    assert not mps.pipes.exists()


async def test_a_stale_pipe_directory_is_cleared_and_old_logs_are_kept(mps: MPSDaemonRun):
    for directory, name in ((mps.pipes, "control"), (mps.paths.logs(UUID), "control.log")):
        directory.mkdir(parents=True)
        (directory / name).write_text("of an earlier daemon")
    (mps.pipes / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert mps.lock.acquire()
    mps.configure()
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
    await until((mps.pipes / "clients").exists)
    old.send_signal(signal.SIGSTOP)  # it does not even answer
    assert mps.lock.acquire()
    mps.configure()
    mps.start()
    await mps.active()
    assert mps.pid() != old.pid
    await until(lambda: old.poll() is not None)


async def test_a_daemon_without_a_server_is_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    mps.gpus.mps(refuse_server=1)
    assert mps.lock.acquire()
    mps.configure()
    with monkeypatch.context() as short:
        short.setattr(daemon_module, "_START_DEADLINE", 0.3)
        mps.start()
        await until(mps.has_pid)
        first = mps.pid()
        await until(lambda: not alive(first))
    mps.gpus.mps()
    await mps.active()


async def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="mounts") as raised:
        clear_directory(tmp_path / "file" / "pipe")
    assert raised.value.reason == "DirectoryNotWritable"


async def test_a_missing_program_is_reported_and_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as missing:
        missing.setattr(mps_protocol, "CONTROL", "no-such-program")
        assert mps.lock.acquire()
        mps.configure()
        mps.start()
        entry = await mps.logged("MPS did not start")
        assert "not on PATH" in entry["error"]
    await mps.active()


def test_a_lock_is_released_with_its_process(tmp_path: Path):
    first, second = FileLock(tmp_path / "a" / "lock"), FileLock(tmp_path / "a" / "lock")
    assert first.holder() is None
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() == os.getpid()
    first.release()
    assert second.holder() is None
    assert second.acquire()
    second.release()


def test_a_configuration_is_read_as_it_was_written_and_garbage_is_none(tmp_path: Path):
    path = tmp_path / "servers" / "gpus-0.json"
    assert MPSConfig.read(path) is None
    config = MPSConfig(UUID, 4096, 7, 2)
    config.write(path)
    assert MPSConfig.read(path) == config
    for noise in ("", "{", "[]", '{"uuid": "x"}', '{"uuid": "x", "no": 1}'):
        path.write_text(noise)
        assert MPSConfig.read(path) is None
