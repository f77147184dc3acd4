"""`partita agent mps`: start, restart, faults and end of the control daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import get_ident

import pynvml
import pytest

from agent.mps_container import UUID, MPSDaemonRun
from partita.agent.errors import DeviceAccessLostError, SetupError
from partita.agent.file_lock import FileLock
from partita.agent.mps.canary_check import CanaryOutcome, CanaryRunner
from partita.agent.mps.daemon import clear_directory
from partita.agent.mps.exchange import MPSConfig
from partita.agent.mps.logs import mps_logs
from support.polling import TIMEOUT, until


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may exit between open and read
        return False


async def test_only_the_configuration_of_the_agent_that_runs_counts(mps: MPSDaemonRun):
    mps.configure()  # nobody holds the lock
    mps.start()
    await mps.logged("waiting for the agent")
    assert not mps.pipes.exists()
    mps.configure(agent=os.getpid() + 1)
    assert mps.lock.acquire()
    await mps.read_again()
    assert not mps.pipes.exists()
    mps.configure()
    await mps.active()


async def test_one_server_serves_this_gpu_alone_to_all_users(mps: MPSDaemonRun):
    mps.gpus.add(1)
    mps.serve()
    server = await mps.active()
    assert f"{server} {25 << 20} 0 S\n" in (mps.gpus.folder / "gpu-0.processes").read_text()
    assert not (mps.gpus.folder / "gpu-1.processes").exists()
    report = await mps.report()
    assert not report.single_user


@pytest.mark.parametrize(
    ("driver", "single_user"),
    [("535.261.03", True), ("550.163.01", True), ("555.58.02", False), ("580.95.05", False)],
)
async def test_a_driver_that_refuses_the_option_for_all_users_serves_one_at_a_time(
    mps: MPSDaemonRun,
    driver: str,
    single_user: bool,  # noqa: FBT001
):
    mps.gpus.install_driver(driver)
    await mps.up()
    assert (await mps.report()).single_user is single_user


async def test_what_the_daemon_prints_is_shown_and_its_fatal_lines_are_kept(
    mps: MPSDaemonRun, capsys: pytest.CaptureFixture[str]
):
    """The daemon of k8s-device-plugin#685 whose server does not start."""
    logs = mps_logs(mps.paths.logs(UUID))
    mps.gpus.mps(refuse_server=1)
    mps.serve()
    found = await until(lambda: [fault for log in logs for fault in log.faults()])
    assert found[0].endswith("Server encountered a fatal exception. Shutting down")
    assert "Starting control daemon using socket" in capsys.readouterr().out


@pytest.mark.parametrize("driver", ["535.261.03", "580.95.05"])  # the former tells no state
async def test_a_canary_may_be_as_slow_as_the_start_of_the_server(mps: MPSDaemonRun, driver: str):
    """cuInit takes 6.6 s with confidential computing (nvtrust#113); here 0.7 s, for 0.1 s."""
    mps.gpus.install_driver(driver)
    mps.gpus.add(0, cuinit=700)
    await mps.up()
    report = await mps.report()
    result = await CanaryRunner(UUID, mps.pipes, lambda: report, 0.1).run()
    assert result.outcome is CanaryOutcome.PASSED
    assert result.seconds > 0.7


async def test_a_daemon_that_exits_is_replaced(mps: MPSDaemonRun):
    server = await mps.up()
    old = mps.pid()
    os.kill(old, signal.SIGKILL)
    await mps.active(not_server=server)
    assert mps.pid() != old
    await until(lambda: not alive(server))


async def test_a_hung_daemon_is_killed_when_the_agent_asks_for_another(mps: MPSDaemonRun):
    mps.times = replace(mps.times, mps_ends_within=0.5)
    server = await mps.up()
    old = mps.pid()
    os.kill(old, signal.SIGSTOP)
    mps.configure(restarts=1)
    await until(lambda: not alive(old))
    await mps.active(not_server=server)


async def test_a_daemon_that_hangs_while_it_starts_is_replaced_when_the_agent_asks(
    mps: MPSDaemonRun,
):
    mps.times = replace(mps.times, mps_answers_within=0.3, mps_ends_within=0.5)
    mps.gpus.mps(hang=1)
    mps.serve()
    await until(mps.has_pid)
    old = mps.pid()
    mps.configure(restarts=1)
    await until(lambda: not alive(old))
    mps.gpus.mps()
    await mps.active()


async def test_clients_outlive_the_agent(mps: MPSDaemonRun):
    server = await mps.up()
    program = mps.run("alloc:10", "forever")
    await until(lambda: program.pid in mps.gpus.pids())
    mps.lock.release()  # it was killed
    await mps.read_again()
    assert mps.lock.acquire()  # it runs again
    mps.configure()
    await mps.read_again()
    mps.lock.release()
    mps.paths.mps_config.unlink()
    await mps.read_again()
    assert await mps.control.servers() == [server]
    assert program.poll() is None


async def test_it_stops_when_the_agent_releases_the_gpu_and_leaves_no_pipes(mps: MPSDaemonRun):
    server = await mps.up()
    MPSConfig("", os.getpid()).write(mps.paths.mps_config)
    await until(lambda: not alive(server) and not mps.pipes.exists())
    await mps.logged("waiting for the agent")
    await mps.read_again()
    assert not mps.pipes.exists(), "no other daemon is started"


async def test_stopped_it_leaves_no_process_and_no_pipes(mps: MPSDaemonRun):
    server = await mps.up()
    control = mps.pid()
    mps.stop.set()
    assert mps.task is not None
    await asyncio.wait_for(mps.task, TIMEOUT)
    assert not alive(server)
    assert not alive(control)
    assert not mps.pipes.exists()


async def test_a_stale_pipe_directory_is_cleared_and_old_logs_are_kept(mps: MPSDaemonRun):
    for directory, name in ((mps.pipes, "control"), (mps.paths.logs(UUID), "control.log")):
        directory.mkdir(parents=True)
        (directory / name).write_text("of an earlier daemon")
    (mps.pipes / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    await mps.up()  # and this process, whose PID stood in the file, lives
    old = mps.paths.logs(UUID) / "control.log.old"
    assert old.read_text() == "of an earlier daemon"


async def test_a_daemon_that_an_earlier_wrapper_left_is_replaced(mps: MPSDaemonRun):
    mps.times = replace(mps.times, mps_ends_within=0.5)
    old = mps.gpus.start(
        "nvidia-cuda-mps-control",
        "-f",
        CUDA_MPS_PIPE_DIRECTORY=str(mps.pipes),
        CUDA_MPS_LOG_DIRECTORY=str(mps.paths.logs(UUID)),
        CUDA_VISIBLE_DEVICES=UUID,
    )
    await until((mps.pipes / "control").exists)
    old.send_signal(signal.SIGSTOP)  # it does not even answer
    await mps.up()
    assert mps.pid() != old.pid
    await until(lambda: old.poll() is not None)


async def test_a_daemon_without_a_server_is_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    """No call of NVML, which may hang, is made in the event loop."""
    threads, close = [], pynvml.nvmlShutdown
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: threads.append(get_ident()) or close())
    mps.times = replace(mps.times, mps_starts_within=5.0, mps_ends_within=5.0)
    mps.gpus.mps(refuse_server=1)
    mps.serve()
    await until(mps.has_pid)
    first = mps.pid()
    await until(lambda: not alive(first))
    mps.gpus.mps()
    await mps.active()
    assert get_ident() not in threads
    assert threads


async def test_a_container_that_lost_its_devices_ends_once_no_daemon_can_start(mps: MPSDaemonRun):
    mps.times = replace(mps.times, mps_starts_within=5.0, mps_ends_within=5.0)
    await mps.up()
    mps.gpus.install_driver(error=999)
    mps.gpus.mps(refuse_server=1)
    await mps.read_again()
    assert mps.task is not None
    assert not mps.task.done(), "clients run on: they and the server hold the GPU open"
    mps.configure(restarts=1)
    with pytest.raises(DeviceAccessLostError, match=r"NVML_ERROR_UNKNOWN \(999\).*daemon-reload"):
        await asyncio.wait_for(mps.task, TIMEOUT)
    mps.task = None
    assert not mps.has_pid()


async def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="mounted") as raised:
        clear_directory(tmp_path / "file" / "pipe")
    assert raised.value.reason == "DirectoryNotWritable"


@pytest.mark.parametrize("refused", [False, True])
def test_where_selinux_labels_files_containers_may_use_the_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, refused: bool
):
    labels = {tmp_path / "gpu" / "pipe": b"system_u:object_r:var_run_t:s0"}

    def write(path: Path, _name: str, label: bytes) -> None:
        if refused:
            raise PermissionError
        labels[path] = label

    monkeypatch.setattr(os, "getxattr", lambda path, _name: labels[path])
    monkeypatch.setattr(os, "setxattr", write)
    clear_directory(tmp_path / "gpu" / "pipe")
    (label,) = labels.values()
    assert (b":container_file_t:s0" in label) is not refused


async def test_what_keeps_a_daemon_from_its_start_is_reported_and_tried_again(
    mps: MPSDaemonRun, monkeypatch: pytest.MonkeyPatch
):
    mps.paths.mps_toml.mkdir(parents=True)
    with monkeypatch.context() as missing:
        missing.setenv("PATH", "/nonexistent")
        mps.serve(protocol=3)
        entry = await mps.logged("MPS did not start")
        assert "cannot be written" in entry["error"]
        mps.logs.clear()
        mps.paths.mps_toml.rmdir()
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
    with pytest.raises(SetupError) as raised:
        FileLock(tmp_path / "a" / "lock" / "file").acquire()
    assert raised.value.reason == "DirectoryNotWritable"


def test_a_configuration_is_read_as_it_was_written_and_garbage_is_none(tmp_path: Path):
    path = tmp_path / "servers" / "gpus-0.json"
    assert MPSConfig.read(path) is None
    config = MPSConfig(UUID, 7, 2)
    config.write(path)
    assert MPSConfig.read(path) == config
    for noise in ("", "{", "[]", '{"uuid": "x"}', '{"uuid": "x", "no": 1}'):
        path.write_text(noise)
        assert MPSConfig.read(path) is None
