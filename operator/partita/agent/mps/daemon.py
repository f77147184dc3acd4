"""`partita agent mps`: runs the MPS control daemon of one GPU in a separate container.

It waits until the agent has configured the GPU (`MPSConfig`). Then it starts the daemon with its
own directories, and the server, to check that it works before the first client connects. With
protocol 2 the variables of each client limit it, and the daemon has no limits of its own, which
would be the whole GPU. The clients of all users share the server (`-multiuser-server`,
https://docs.nvidia.com/deploy/mps/latest/architecture.html, "Server"): jobs run under different
UIDs, and otherwise wait until the clients of other UIDs have exited. Where the driver refuses the
option, they do; the agent reports it.

What the daemon and its server print goes to the container's output. A file keeps the lines that
report a fault for the agent (`partita.agent.mps.logs`).

It restarts the daemon when the daemon exits or the agent requests it. It stops the daemon when the
agent releases the GPU, but not when the agent exits: clients run on without an agent.
"""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from partita.agent.errors import (
    AgentError,
    DeviceAccessLostError,
    MPSError,
    MPSRefusedError,
    NVMLError,
    SetupError,
)
from partita.agent.event_wait import ends_within
from partita.agent.file_lock import FileLock
from partita.agent.gpu.nvml import close_library, open_library
from partita.agent.gpu.nvml_threads import in_thread
from partita.agent.mps.control import CONTROL, MPSControl, ServerState
from partita.agent.mps.exchange import MPSConfig, MPSReport
from partita.agent.mps.logs import copy_output
from partita.agent.mps.protocol import (
    REFUSED,
    control_client,
    daemon_choices,
    start_daemon,
)
from partita.agent.mps.terminate import send_signal
from partita.agent.paths import Paths, remove_file, writing
from partita.agent.times import AgentTimes

__all__ = ["MPSDaemon", "clear_directory"]

_LABEL: Final = "security.selinux"
"""Extended attribute with the SELinux label of a file (xattr(7))."""
_LONGEST_PAUSE: Final = 30.0
"""Seconds before a daemon that failed to start is started again, doubled each time."""


class MPSDaemon:
    """Runs the control daemon of one GPU.

    Parameters
    ----------
    paths
        The files shared with the agent.
    stop
        Set by the caller to stop the daemon.
    times
        How long it waits.
    """

    def __init__(self, paths: Paths, stop: asyncio.Event, times: AgentTimes) -> None:
        self._paths = paths
        self._times = times
        self._stop = stop
        self._log = structlog.get_logger(__name__).bind(server=paths.server)
        self._process: asyncio.subprocess.Process | None = None
        self._pause = self._times.mps_first_pause
        self._protocol = 2
        self._output: asyncio.Task[None] | None = None
        self._no_protocol_3 = False
        """Whether the daemon has refused protocol 3."""

    async def run(self) -> None:
        """Run daemons until stopped.

        Raises
        ------
        DeviceAccessLostError
            No daemon can start, because this container may not open the GPU any more. kubelet
            makes the container anew. A daemon that runs is left alone: its GPU is open.
        """
        while not self._stop.is_set():
            config = await self._configured()
            if config is None:
                return
            try:
                await self._run_one(config)
            except AgentError as error:
                self._log.warning("MPS did not start", error=str(error), retry_in=self._pause)
                await self._check_access()
                await self._rest(self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            finally:
                await self._end(config)

    async def _check_access(self) -> None:
        try:
            await in_thread(_open_driver)
        except DeviceAccessLostError:
            raise
        except NVMLError as error:
            self._log.warning("NVML fails", error=str(error))

    async def _configured(self) -> MPSConfig | None:
        """Wait for the configuration of a running agent; return None if stopped."""
        lock = FileLock(self._paths.agent_lock)
        self._log.info("waiting for the agent")
        while not self._stop.is_set():
            config = MPSConfig.read(self._paths.mps_config)
            if config is not None and config.uuid and config.agent == lock.holder():
                return config
            await self._rest(self._times.mps_poll)
        return None

    async def _run_one(self, config: MPSConfig) -> None:
        """Run one daemon until it exits, the agent requests another one, or stop is requested."""
        uuid = config.uuid
        pipes, logs = self._paths.pipes(uuid), self._paths.logs(uuid)
        await self._stop_old(pipes)
        for directory in (pipes, logs):
            clear_directory(directory)
        process, report = await self._start(config, pipes, logs)
        report.write(self._paths.mps_report)
        self._pause = self._times.mps_first_pause
        self._log.info("MPS runs", gpu=uuid, report=report)
        while process.returncode is None and not self._stop.is_set():
            now = MPSConfig.read(self._paths.mps_config) or config
            if now.is_other_daemon(config):
                self._log.info("stopping MPS", why="the agent requests it")
                return
            await ends_within(self._times.mps_poll, process.wait())
        if process.returncode is not None:
            self._log.warning("MPS has exited", code=process.returncode)

    async def _start(
        self, config: MPSConfig, pipes: Path, logs: Path
    ) -> tuple[asyncio.subprocess.Process, MPSReport]:
        """Start a daemon with the newest protocol and the first options that it takes.

        Whether they work is shown by a daemon that answers, and never inferred from a version. A
        daemon that has refused protocol 3 once is not asked for it again.
        """
        if self._no_protocol_3:
            config = replace(config, protocol=2)
        *choices, last = daemon_choices(config, self._paths.mps_toml)
        for choice in (*choices, last):
            began = asyncio.get_running_loop().time()
            self._process = process = await start_daemon(choice.arguments, config.uuid, pipes, logs)
            self._output = asyncio.create_task(copy_output(process, logs))
            self._protocol = choice.protocol
            report = MPSReport(
                process.pid, choice.protocol, choice.single_user, self._no_protocol_3
            )
            try:
                partitions = await self._active(process, self._control(pipes), config)
            except MPSRefusedError:
                if choice is last:
                    raise
                self._log.info("MPS refuses an option", arguments=choice.arguments)
                self._no_protocol_3 |= choice.protocol == 3
            except SetupError as error:
                failed = replace(report, daemon=0, no_sm_partitions=str(error))
                failed.write(self._paths.mps_report)
                raise
            else:
                break
        took = asyncio.get_running_loop().time() - began
        return process, replace(report, sm_partitions=partitions, started_in=took)

    async def _active(
        self, process: asyncio.subprocess.Process, control: MPSControl, config: MPSConfig
    ) -> tuple[str, ...]:
        """Prepare the server and wait until it is ACTIVE; return its static SM partitions.

        Raises
        ------
        MPSRefusedError
            The daemon does not know one of its options.
        """
        answers = False
        deadline = asyncio.get_running_loop().time() + self._times.mps_starts_within
        while True:
            try:
                await control.servers()
                answers = True
                sm_partitions = config.slots if config.static_sm else 0
                partitions = await control.prepare(config.uuid, sm_partitions)
                for server in await control.servers():
                    if await control.state(server) is ServerState.ACTIVE:
                        return partitions
            except MPSError as error:
                # Usually the daemon has not created its socket yet.
                self._log.debug("not started yet", error=str(error))
            if process.returncode is not None:
                refused = process.returncode == REFUSED and not answers
                raise (MPSRefusedError if refused else MPSError)("the control daemon has exited")
            now = MPSConfig.read(self._paths.mps_config)
            if now is not None and now.is_other_daemon(config):
                raise MPSError("the agent requests another control daemon, or none")
            if self._stop.is_set() or asyncio.get_running_loop().time() > deadline:
                within = self._times.mps_starts_within
                raise MPSError(f"no server became ACTIVE within {within:g} s")
            await self._rest(self._times.mps_poll)

    async def _stop_old(self, pipes: Path) -> None:
        """Stop a daemon of an earlier container, because its limits may differ."""
        report = MPSReport.read(self._paths.mps_report)
        remove_file(self._paths.mps_report)
        if not (pipes / "control").exists():
            return
        self._protocol = report.protocol if report is not None else 2
        with suppress(MPSError):
            await self._control(pipes, self._times.mps_ends_within).quit()
            self._log.info("an old control daemon was asked to exit", pipes=str(pipes))
        with suppress(FileNotFoundError, ValueError, ProcessLookupError, PermissionError):
            pid = int((pipes / "nvidia-cuda-mps-control.pid").read_text())
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not _is_control(pid):
                    break
                send_signal(pid, number, lambda: _is_control(pid))
                await self._rest(self._times.mps_poll)

    async def _end(self, config: MPSConfig) -> None:
        """Stop the daemon and all its servers, first by the command `quit`."""
        process, self._process = self._process, None
        if process is None:
            return
        pipes = self._paths.pipes(config.uuid)
        if process.returncode is None:
            with suppress(MPSError, TimeoutError):
                async with asyncio.timeout(self._times.mps_ends_within):
                    await self._control(pipes, self._times.mps_ends_within).quit()
                    await process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):
            # End the whole session: a server that runs on without its daemon would occupy the GPU.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            await ends_within(self._times.mps_ends_within, process.wait())
        if self._output is not None:
            self._output.cancel()
        report = MPSReport.read(self._paths.mps_report)
        if report is not None and report.daemon:  # else it says why none was started
            remove_file(self._paths.mps_report)
        now = MPSConfig.read(self._paths.mps_config)
        if self._stop.is_set() or now is None or now.uuid != config.uuid:  # no other one follows
            shutil.rmtree(pipes, ignore_errors=True)

    def _control(self, pipes: Path, deadline: float | None = None) -> MPSControl:
        deadline = self._times.mps_answers_within if deadline is None else deadline
        return control_client(self._protocol, pipes, asyncio.Lock(), deadline)

    async def _rest(self, seconds: float) -> None:
        await ends_within(seconds, self._stop.wait())


def clear_directory(directory: Path) -> None:
    """Create a directory that all users may enter, and remove files of an earlier daemon from it.

    The logs of the last daemon are kept under another name. Directories are kept, because the
    containers of jobs have mounted them.

    Raises
    ------
    SetupError
        The directory cannot be written.
    """
    with writing(directory):
        for file in directory.rglob("*"):
            if directory.name != "log":
                if not file.is_dir():
                    file.unlink()
            elif file.suffix == ".log":
                file.replace(file.with_suffix(".log.old"))
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        directory.parent.chmod(0o755)
        _let_containers_use(directory)


def _let_containers_use(directory: Path) -> None:
    """Give a directory the SELinux label of containers' files, which new files in it inherit.

    NVIDIA's device plugin does the same with its pipe directory (cmd/mps-control-daemon/mps/
    daemon.go). Without SELinux the directory has no label to replace. Bottlerocket refuses a new
    label, and lets containers write below /run with that which is there (`ephemeral_o`,
    packages/selinux-policy/rules.cil).
    """
    with suppress(OSError):
        os.getxattr(directory, _LABEL)
        os.setxattr(directory, _LABEL, b"system_u:object_r:container_file_t:s0")


def _open_driver() -> None:
    open_library()
    close_library()


def _is_control(pid: int) -> bool:
    """Return whether a PID still belongs to a control daemon: PIDs are reused."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(CONTROL.encode() in word for word in command)
