"""`partita agent mps`: keeps the MPS control daemon of one GPU running, in a container of its own.

It waits until the agent has said which GPU it is, and has claimed it; then it starts the daemon
with directories of its own, sets the limits, which a daemon forgets when it ends, and starts the
server, so that it is known to work before the first client comes. All users' clients share that
server (`-multiuser-server`, https://docs.nvidia.com/deploy/mps/latest/architecture.html, "Server"):
jobs run under different UIDs, and otherwise would wait for each other's end.

It ends the daemon and starts another when that one exits or the agent asks for it, and ends it for
good when the agent gives the GPU back; never because the agent is gone, for clients run on without
it.
"""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from partita.agent.errors import AgentError, MPSError, SetupError
from partita.agent.mps_control import CONTROL, ControlDaemon, ServerState
from partita.agent.paths import Handover, Lock, Paths
from partita.agent.signals import send

__all__ = ["Wrapper", "clear_directory"]

_POLL: Final = 0.2
"""Seconds between two looks at what the agent says, and at a daemon that starts."""
_START_DEADLINE: Final = 60.0
"""Seconds until a server must be ACTIVE. A cold driver on a node with many GPUs takes long
(https://docs.nvidia.com/deploy/mps/latest/troubleshooting.html, "Server Initialization")."""
_END_DEADLINE: Final = 5.0
"""Seconds for a daemon to end of itself, and again after SIGTERM; within a Pod's 30 s."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""Seconds before a daemon that does not come up is tried again, doubled each time."""
_ROOT: Final = 0
_ALL_THREADS: Final = 100

log = structlog.get_logger(__name__)


class Wrapper:
    """Keeps one GPU's control daemon.

    Parameters
    ----------
    paths
        Where agent and wrapper meet.
    stop
        Set when it is to end.
    """

    def __init__(self, paths: Paths, stop: asyncio.Event) -> None:
        self._paths = paths
        self._stop = stop
        self._log = log.bind(server=paths.server)
        self._process: asyncio.subprocess.Process | None = None
        self._pause = _FIRST_PAUSE

    async def run(self) -> None:
        """Serve until stopped."""
        while not self._stop.is_set():
            handover = await self._handover()
            if handover is None:
                return
            try:
                await self._serve(handover)
            except AgentError as error:
                self._log.warning("MPS did not start", error=str(error), retry_in=self._pause)
                await self._rest(self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            finally:
                await self._end(handover)

    async def _handover(self) -> Handover | None:
        """Wait for a living agent's word; None when stopped."""
        lock = Lock(self._paths.agent_lock)
        said = False
        while not self._stop.is_set():
            handover = Handover.read(self._paths.handover)
            if handover is not None and handover.uuid and handover.agent == lock.holder():
                return handover
            if not said:
                said = True
                self._log.info("waiting for the agent")
            await self._rest(_POLL)
        return None

    async def _serve(self, handover: Handover) -> None:
        """Run one daemon until it ends or is to end."""
        uuid = handover.uuid
        pipes, logs = self._paths.pipes(uuid), self._paths.logs(uuid)
        await self._remove_old(pipes)
        for directory in (pipes, logs):
            clear_directory(directory)
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(logs),
        }
        try:
            self._process = await asyncio.create_subprocess_exec(
                CONTROL, "-f", "-multiuser-server", env=environment, start_new_session=True
            )
        except FileNotFoundError:
            raise SetupError(
                "NoMPS",
                f"{CONTROL} is not on PATH: NVIDIA's runtime brings it with the driver "
                "capability `compute`",
            ) from None
        control = ControlDaemon(str(pipes), asyncio.Lock())
        await self._set_up(control, handover)
        self._pause = _FIRST_PAUSE
        self._log.info("MPS serves", gpu=uuid, pid=self._process.pid)
        ended = asyncio.ensure_future(self._process.wait())
        try:
            while not ended.done() and not self._stop.is_set():
                if self._superseded(handover):
                    self._log.info("MPS is to end", why="the agent asks for it")
                    return
                await asyncio.wait({ended}, timeout=_POLL)
        finally:
            ended.cancel()
        if self._process.returncode is not None:
            self._log.warning("MPS has ended", code=self._process.returncode)

    def _superseded(self, handover: Handover) -> bool:
        """Tell whether the agent wants another daemon by now, or none; its silence is no word."""
        now = Handover.read(self._paths.handover)
        return now is not None and (now.uuid, now.restarts) != (handover.uuid, handover.restarts)

    async def _set_up(self, control: ControlDaemon, handover: Handover) -> None:
        """Set what clients may have at most, then start their server and wait for it."""
        deadline = asyncio.get_running_loop().time() + _START_DEADLINE
        while True:
            try:
                await control.limit_memory(0, handover.memory)
                await control.limit_threads(_ALL_THREADS)
                await control.start_server(_ROOT)
                for server in await control.servers():
                    if await control.state(server) is ServerState.ACTIVE:
                        return
            except MPSError as error:
                # It has not made its socket yet, as a rule.
                self._log.debug("not up yet", error=str(error))
            if self._process is None or self._process.returncode is not None:
                raise MPSError("the control daemon has ended")
            if self._superseded(handover):
                raise MPSError("the agent asks for another control daemon, or none")
            if self._stop.is_set() or asyncio.get_running_loop().time() > deadline:
                raise MPSError(f"no server became ACTIVE within {_START_DEADLINE:g} s")
            await self._rest(_POLL)

    async def _remove_old(self, pipes: Path) -> None:
        """End a daemon that an earlier wrapper left: its limits are not known to be ours."""
        old = ControlDaemon(str(pipes), asyncio.Lock(), deadline=_END_DEADLINE)
        if not (pipes / "control").exists():
            return
        with suppress(MPSError):
            await old.quit()
            self._log.info("an old control daemon was asked to end", pipes=str(pipes))
        with suppress(FileNotFoundError, ValueError, ProcessLookupError, PermissionError):
            pid = int((pipes / "nvidia-cuda-mps-control.pid").read_text())
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not _is_control(pid):
                    break
                send(pid, number, lambda: _is_control(pid))
                await self._rest(_POLL)

    async def _end(self, handover: Handover) -> None:
        """End the daemon and all its servers, at first by asking."""
        process, self._process = self._process, None
        if process is None:
            return
        pipes = self._paths.pipes(handover.uuid)
        if process.returncode is None:
            with suppress(MPSError):
                await ControlDaemon(str(pipes), asyncio.Lock(), deadline=_END_DEADLINE).quit()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_DEADLINE):
                    await process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):
            # Its session: a server that outlives its daemon would keep the GPU.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_DEADLINE):
                    await process.wait()
        shutil.rmtree(pipes, ignore_errors=True)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def clear_directory(directory: Path) -> None:
    """Make a directory that all users may enter, with nothing of an earlier daemon in it.

    The logs of the last one stay, under another name.

    Raises
    ------
    SetupError
        If it cannot be written.
    """
    try:
        if directory.name == "log" and directory.is_dir():
            for file in directory.glob("*.log"):
                file.replace(file.with_suffix(".log.old"))
        else:
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        directory.parent.chmod(0o755)
    except OSError as error:
        raise SetupError(
            "DirectoryNotWritable",
            f"{directory} cannot be made ({error.strerror}): the server Pod mounts "
            f"{directory.parent.parent} from the node, which must let root write there",
        ) from error


def _is_control(pid: int) -> bool:
    """Tell whether a PID is still that of a control daemon: PIDs are used anew."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(CONTROL.encode() in word for word in command)
