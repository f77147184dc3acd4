"""Processes that end with us, however we end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Stopped", "alive", "end", "start", "stop_on_signals", "undisturbed"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(SystemExit):
    """We were asked to end.

    No check may take it for an error of its own, and asyncio lets no other kind through from
    everywhere.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.name = signal.Signals(number).name


def stop_on_signals() -> None:
    """Make signals end us by way of every `finally`."""

    def stop(number: int, _frame: object) -> None:
        # Once is enough: what is done from here on is to clean up, and all of it has deadlines.
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    for number in _SIGNALS:
        signal.signal(number, stop)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals wait until the end of the block, which is to be short."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start(
    command: Sequence[str], environment: Mapping[str, str], said: Path, *, talks: bool = True
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own.

    Parameters
    ----------
    said
        File for its stderr, and its stdout unless it talks to us.
    """
    with said.open("ab") as file:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else file,
            stderr=file,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """End a process and all of its session, at first by closing its stdin.

    Parameters
    ----------
    patience
        Seconds for it to end of itself.
    """
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def alive(pid: int, name: str) -> bool:
    """Tell whether a PID is still that of a program: PIDs are used anew."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return name.encode() in words
