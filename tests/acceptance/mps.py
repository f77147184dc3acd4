"""An MPS control daemon with directories of its own, spoken to as Partita's agent speaks to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from acceptance.children import alive, end, start
from acceptance.results import CannotRunError
from partita.agent.errors import MPSError
from partita.agent.mps.control import COMMAND_DEADLINE, CONTROL, MPSControl, ServerState

__all__ = ["ROOT", "SERVER", "Daemon", "plain_environment"]

SERVER = "nvidia-cuda-mps-server"
ROOT = 0
"""UID of root."""
_KILL_DEADLINE = 2.0
"""Seconds for it after SIGTERM."""
_POLL = 0.05
_START_POLL = 0.2
"""Seconds between two looks, as in `partita.agent.mps.daemon`."""
_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts a program that gets SIGTERM should we be killed: PR_SET_PDEATHSIG, prctl(2)."""
_LOG_END = 600
"""Characters of a log that are worth telling."""

T = TypeVar("T")


def plain_environment(uuid: str, nowhere: Path) -> dict[str, str]:
    """Variables of a program that is to reach no MPS, not even one that runs on this machine.

    Parameters
    ----------
    nowhere
        An empty directory: without a daemon in it CUDA goes on without MPS
        (nvidia-cuda-mps-control(1), "Description").
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_MPS_")}
    return {**kept, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_MPS_PIPE_DIRECTORY": str(nowhere)}


class Daemon:
    """One control daemon, from its start to its end.

    Parameters
    ----------
    folder
        An empty directory, of a short path: sockets are in it, 107 bytes at most (unix(7)).
    uuid
        The GPU.
    options
        Further options of the daemon.
    starts_within, ends_within
        Seconds until a server takes clients; and for the daemon to answer `quit`, and to end.
    """

    protocol = 2
    """Interface of the daemon."""

    def __init__(
        self,
        folder: Path,
        uuid: str,
        options: Sequence[str] = (),
        starts_within: float = 60.0,
        ends_within: float = 10.0,
    ) -> None:
        self._starts_within = starts_within
        self._ends_within = ends_within
        self.pipes = folder / "pipe"
        self.logs = folder / "log"
        self.output = self.logs / "output"
        """What it prints: in the foreground it writes no other log."""
        self._uuid = uuid
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.pids: set[int] = set()
        """Servers that it has had."""
        self.started_in = 0.0
        """Seconds until the server was ACTIVE."""

    def start(self) -> None:
        """Start it, and a server, and wait until that takes clients.

        Raises
        ------
        CannotRunError
            If it does not come up.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def ask(
        self, question: Callable[[MPSControl], Awaitable[T]], deadline: float = COMMAND_DEADLINE
    ) -> T:
        """Ask it something; it has `deadline` seconds to answer."""

        async def asking() -> T:
            return await question(MPSControl(str(self.pipes), asyncio.Lock(), deadline))

        return asyncio.run(asking())

    @property
    def running(self) -> bool:
        """Whether the control daemon lives."""
        return self._process is not None and self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the control daemon to end; tell whether it did."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            time.sleep(_POLL)
        return not self.running

    @property
    def server(self) -> int:
        """PID of its server."""
        (server,) = self.ask(lambda control: control.servers())
        self.pids.add(server)
        return server

    @property
    def client_pipes(self) -> Path:
        """CUDA_MPS_PIPE_DIRECTORY of its clients."""
        return self.pipes

    def clients(self) -> list[int]:
        """Return the PIDs of its clients."""
        server = self.server
        return self.ask(lambda control: control.clients(server))

    def state(self) -> str:
        """Return the state of its server."""
        server = self.server
        return self.ask(lambda control: control.state(server))

    def partition(self, _name: str) -> str:
        """Make a static SM partition of one chunk; return its CUDA_MPS_SM_PARTITION.

        `sm_partition add`: https://docs.nvidia.com/deploy/mps/common-tasks.html, "Using Static SM
        Partitioning".
        """
        command = f"sm_partition add {self._uuid} 1"
        return self.ask(lambda control: control.command(command)).strip()

    def terminate(self, pid: int, deadline: float) -> str:
        """Terminate a client; return the error, empty on success.

        Raises
        ------
        MPSError
            The daemon did not answer within `deadline` seconds.
        """
        server = self.server
        return self.ask(lambda control: control.terminate(server, pid), deadline)

    def _commands(self) -> list[list[str]]:
        """The command, and what follows if the driver does not have its options."""
        # As `partita.agent.mps.protocol` does; only root may serve several users.
        several = ["-multiuser-server", "-M"] if os.getuid() == ROOT else []
        choices = [*([option] for option in several), []]
        return [[CONTROL, "-f", *choice, *self._options] for choice in choices]

    def _start(self) -> None:
        for directory in (self.pipes, self.logs):
            directory.mkdir(parents=True)
            directory.chmod(0o755)
        command, *others = self._commands()
        self._launch(command)
        began = time.monotonic()
        while not self._active():
            if not self.running and others:
                self._launch(others.pop(0))
            elif not self.running:
                code = self._process and self._process.poll()
                raise CannotRunError(f"the MPS control daemon ended with code {code}{self.said()}")
            if time.monotonic() > began + self._starts_within:
                raise CannotRunError(
                    f"no MPS server became ACTIVE within {self._starts_within:g} s{self.said()}"
                )
            time.sleep(_START_POLL)
        self.started_in = time.monotonic() - began

    def _launch(self, command: Sequence[str]) -> None:
        environment = plain_environment(self._uuid, self.pipes)
        environment["CUDA_MPS_LOG_DIRECTORY"] = str(self.logs)
        started = [sys.executable, "-c", _WITH_US, *command]
        self._process = start(started, environment, self.output, talks=False)

    def _active(self) -> bool:
        with suppress(MPSError):
            servers = self.ask(lambda control: control.servers())
            self.pids.update(servers)
            if servers:
                return self.ask(lambda control: control.state(servers[0])) is ServerState.ACTIVE
            self.ask(lambda control: control.start_server(os.getuid()))
        return False

    def _quit(self) -> None:
        self.ask(lambda control: control.quit(), self._ends_within)

    def said(self) -> str:
        """Return the end of its logs, for a message."""
        texts = [
            path.read_text(errors="replace").strip()
            for name in (self.output.name, "control.log", "server.log")
            if (path := self.logs / name).exists()
        ]
        text = " | ".join(text.replace("\n", "; ")[-_LOG_END:] for text in texts if text)
        return f"; it said: {text}" if text else ""

    def stop(self) -> bool:
        """End it and its servers; tell whether `quit` was enough."""
        process, self._process = self._process, None
        if process is None:
            return True
        if process.poll() is None:
            with suppress(MPSError):
                self._quit()

        def over() -> bool:
            return process.poll() is not None and not any(alive(p, SERVER) for p in self.pids)

        deadline = time.monotonic() + self._ends_within
        while not (went := over()) and time.monotonic() < deadline:
            time.sleep(_POLL)
        # Its session: a server that outlives its daemon would keep the GPU.
        end(process, _KILL_DEADLINE)
        return went
