"""Start a server as a child process, wait until it is ready, and leave nothing behind.

In the manner of controller-runtime's ``internal/testing/process``: poll readiness under a
deadline, stop with TERM, then KILL, and only what was started here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from apiserver import tied_process
from support.polling import TIMEOUT, holds_within

__all__ = ["NotReadyError", "ServerProcess", "ServerProcesses", "free_port", "with_free_ports"]

PORT_ATTEMPTS = 3


class NotReadyError(Exception):
    """A server ended, or did not become ready in time; the message has the end of its log."""


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def with_free_ports(count: int, start: Callable[..., object]) -> tuple[int, ...]:
    """Call ``start`` with free ports; again with others where one was taken in between.

    Returns
    -------
    tuple
        The ports.
    """
    for left in reversed(range(PORT_ATTEMPTS)):
        ports = tuple(free_port() for _ in range(count))
        try:
            start(*ports)
        except NotReadyError as error:
            if not left or "already in use" not in str(error):
                raise
        else:
            return ports
    raise AssertionError("unreachable")


class ServerProcess:
    """One server in its own session, tied to the life of this process.

    The command runs behind `apiserver.tied_process` as a launcher, which asks the kernel to kill it when this
    process ends in any way, and then becomes the command: its pid stays the same. Start it from
    a thread that outlives it: to the kernel the parent is the thread.
    """

    def __init__(self, command: Sequence[str | Path], *, log: Path) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._command = [str(part) for part in command]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    def start(self, ready: Callable[[], bool], *, seconds: float = TIMEOUT) -> None:
        """Start it and return when ``ready()`` holds.

        Raises
        ------
        NotReadyError
            It ended, or was not ready within ``seconds``; it is not running any more then.
        """
        process = self.launch()
        if (
            holds_within(lambda: process.poll() is not None or ready(), seconds)
            and process.poll() is None
        ):
            return
        code = process.poll()
        self.stop(grace=0)
        how = f"was not ready within {seconds:g} s" if code is None else f"ended with code {code}"
        raise NotReadyError(f"{self.name} {how}. The end of its log:\n{self.tail()}")

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it, perhaps once more, without waiting until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-S", tied_process.__file__, str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self, *, grace: float = 5) -> None:
        """Send TERM, and KILL to its whole session after ``grace`` seconds; then reap it."""
        process = self._process
        if process is None:
            return
        if process.poll() is None and grace > 0:
            process.terminate()
            holds_within(lambda: process.poll() is not None, grace)
        if process.poll() is None:
            # Not reaped yet, so the number still names this session and no stranger's.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None


class ServerProcesses:
    """Servers that end together: those first that were started last, and so lean on the others."""

    def __init__(self) -> None:
        self._running: list[ServerProcess] = []

    def start(self, process: ServerProcess, ready: Callable[[], bool]) -> None:
        """Start one more, as `ServerProcess.start` does."""
        process.start(ready)
        self._running.append(process)

    def stop(self) -> None:
        """Stop all of them."""
        for process in reversed(self._running):
            process.stop()
        self._running.clear()

    def named(self, name: str) -> ServerProcess:
        """Return the one that was started first of those of this name."""
        return next(process for process in self._running if process.name == name)

    @property
    def pids(self) -> list[int]:
        """The ids of those that run now."""
        return [process.pid for process in self._running if process.pid is not None]

    def tails(self, lines: int) -> str:
        """Return the last lines of each one's output."""
        return "\n".join(process.tail(lines) for process in self._running)
