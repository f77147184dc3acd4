"""Ends one process's work on the GPU, and leaves its neighbours alone."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from partita.agent.errors import MPSError
from partita.agent.mps_control import ControlDaemon
from partita.agent.signals import send
from partita.models import SharingMode

__all__ = ["Terminate", "terminator"]

Terminate: TypeAlias = Callable[[int, Callable[[], bool]], Awaitable[str]]
"""Takes the process's PID, and what tells whether the PID still is that of the same process;
returns why it could not be ended, empty when it was."""

_WITHIN: Final = 1.5
"""Seconds for `terminate_client`, so that a process is stopped within 2 s of being seen."""


class _ByMPS:
    """Under MPS only the server may do it.

    "Terminating an MPS client without synchronizing with all outstanding GPU work (via Ctrl-C,
    ... signals) can leave the MPS server and other MPS clients in an undefined state":
    https://docs.nvidia.com/deploy/mps/latest/when-to-use-mps.html, "Limitations".
    """

    def __init__(self, control: ControlDaemon) -> None:
        self._control = control

    async def __call__(self, pid: int, is_same: Callable[[], bool]) -> str:
        if not is_same():
            return ""
        try:
            for server in await self._control.servers():
                return await self._control.terminate(server, pid)
        except MPSError as error:
            return str(error)
        return "no MPS server runs"


class _BySignal:
    """Without MPS each process has a context of its own, which the driver clears away."""

    async def __call__(self, pid: int, is_same: Callable[[], bool]) -> str:
        return send(pid, signal.SIGKILL, is_same)


def terminator(mode: SharingMode, pipes: str, lock: asyncio.Lock) -> Terminate:
    """Choose how a process is ended."""
    if mode is SharingMode.MPS:
        return _ByMPS(ControlDaemon(pipes, lock, _WITHIN))
    return _BySignal()
