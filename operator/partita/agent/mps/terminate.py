"""Terminates the GPU work of one process without an effect on other processes."""

import os
import signal
from collections.abc import Callable

from partita.agent.errors import MPSError
from partita.agent.mps.control import MPSControl

__all__ = ["send_signal", "terminate"]


async def terminate(pid: int, is_same: Callable[[], bool], mps: MPSControl | None) -> str:
    """Terminate the GPU work of a process; return the error, empty on success.

    Parameters
    ----------
    is_same
        Returns whether the PID still belongs to the same process.
    mps
        The control daemon; None in modes without MPS.

    Notes
    -----
    Under MPS only the server may do this. "Terminating an MPS client without synchronizing with all
    outstanding GPU work (via Ctrl-C, ... signals) can leave the MPS server and other MPS clients
    in an undefined state": https://docs.nvidia.com/deploy/mps/latest/when-to-use-mps.html,
    "Limitations". Without MPS each process has its own context, which the driver cleans up.
    """
    if mps is None:
        return send_signal(pid, signal.SIGKILL, is_same)
    if not is_same():
        return ""
    try:
        for server in await mps.servers():
            return await mps.terminate(server, pid)
    except MPSError as error:
        return str(error)
    return "no MPS server runs"


def send_signal(pid: int, number: signal.Signals, is_same: Callable[[], bool]) -> str:
    """Send a signal; return the error, empty if it was sent or the process has exited.

    A PID can be reused as soon as its process has exited. A pidfd refers to the process that had
    the PID when it was opened (pidfd_open(2)), so the process is identified after that.

    Parameters
    ----------
    is_same
        Returns whether the PID still belongs to the same process.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return ""
    try:
        if is_same():
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "the agent may not: its container needs the capability KILL"
    finally:
        os.close(descriptor)
    return ""
